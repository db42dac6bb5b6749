"""The three families of problems: allocation, selection and placement. Nothing else lists them."""
