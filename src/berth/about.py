"""The version of berth, and the folder where it is installed."""

from pathlib import Path

VERSION = "0.1.0"
HOME = Path(__file__).parent
