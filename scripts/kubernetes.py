"""Kubernetes for tests and benchmarks: `berth.live.clusters.kubernetes` starts it; this installs its control plane.

python3 scripts/kubernetes.py install   installs etcd with apt, and builds Kubernetes from Debian's source package where
                                        it is not there (needs root; takes about ten minutes, once)
python3 scripts/kubernetes.py where     prints the folder of the programs

The programs lie in BERTH_KUBERNETES, by default a folder of the user's cache. BERTH_GOCACHE keeps compiled packages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

VERSION = "1.20.2"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
PACKAGES = {"etcd": "etcd-server", "kubectl": "kubernetes-client", "openssl": "openssl"}
"""Packages of further programs."""
GO, COMPILER = Path("/usr/lib/go-1.19/bin"), "golang-1.19-go"
DISK_GIB = 5
"""Room for the sources and compiled packages, which are removed when the build is done."""
TAGS = "providerless,dockerless"
IMPORTS = "k8s.io/kubernetes"
NOT_GENERATED = ("code-generator", "sample-apiserver")


def folder() -> Path:
    """Where the programs are, or will be."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("BERTH_KUBERNETES") or Path(cache, "berth", f"kubernetes-{VERSION}"))


def say(text: str) -> None:
    print(f"kubernetes: {text}", flush=True)


def run(*command: str | Path, why: str, where: Path | None = None, **variables: str) -> None:
    """Run a command quietly; if it fails, end with one line that says what failed, after the command's own output."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=where,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode:
        print(done.stdout[-3000:], file=sys.stderr)
        sys.exit(f"kubernetes: {why} ({Path(command[0]).name} ended with status {done.returncode})")


def install() -> None:
    """Install and build what is not there; no service is started."""
    where = folder()
    built = all(os.access(where / program, os.X_OK) for program in PROGRAMS) or all(map(shutil.which, PROGRAMS))
    packages = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    if not built and not (GO / "go").exists():
        packages.append(COMPILER)
    if built and not packages:
        return
    if shutil.which("apt-get") is None:
        sys.exit(f"kubernetes: there is no apt-get here; put {', '.join((*PROGRAMS, *PACKAGES))} into the PATH")
    if packages:
        if os.getuid():
            sys.exit(f"kubernetes: only root can install packages: apt-get install {' '.join(packages)}")
        say(f"installing {', '.join(packages)}")
        run("apt-get", "update", "-q", why="the lists of packages cannot be read")
        options = ("-q", "-y", "--no-install-recommends")
        run("apt-get", "install", *options, *packages, why=f"no {', '.join(packages)}")
    if not built:
        where.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(where.parent).free / 2**30
        if free < DISK_GIB:
            sys.exit(f"kubernetes: {where.parent} has {free:.1f} GiB left; the build needs {DISK_GIB} GiB")
        with tempfile.TemporaryDirectory(prefix="kubernetes-build-", dir=where.parent) as beside:
            finished = build(unpacked(Path(beside)), Path(beside))
            where.mkdir(exist_ok=True)
            for program in PROGRAMS:
                (finished / program).replace(where / program)
        say(f"the programs are in {where}")


def unpacked(beside: Path) -> Path:
    """Download the source package with apt, without changing apt's settings, and unpack it."""
    say(f"downloading the source package of Kubernetes {VERSION} (35 MB)")
    lists, cache, sources = beside / "lists", beside / "cache", beside / "all.sources"
    for part in (lists / "partial", cache / "archives" / "partial"):
        part.mkdir(parents=True)
    sources.write_text("\n".join(source_entries(Path("/etc/apt"))), encoding="utf-8")
    # root downloads as itself: apt's own user may not write here
    settings = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": lists,
        "Dir::Cache": cache,
        "APT::Sandbox::User": "root",
    }
    own = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    run("apt-get", *own, "update", "-q", why="the lists of source packages cannot be downloaded")
    get = ("source", "-q", "--download-only", "kubernetes")
    run("apt-get", *own, *get, where=beside, why="the source package of Kubernetes cannot be downloaded")
    files = list(beside.glob(f"kubernetes_*{VERSION}*.orig.tar.*"))
    if len(files) != 1:
        sys.exit(
            f"kubernetes: apt has another version than {VERSION}: {[file.name for file in beside.glob('*.tar.*')]}"
        )
    say("unpacking it")
    target = beside / "go" / "src" / "k8s.io"
    with tarfile.open(files[0]) as archive:
        archive.extraction_filter = getattr(tarfile, "tar_filter", None)
        archive.extractall(target)
    (top,) = target.iterdir()
    return top.rename(target / "kubernetes")


def source_entries(etc: Path) -> Iterator[str]:
    """Entries for source packages, in the deb822 format, from all entries that apt uses."""
    for file in sorted((etc / "sources.list.d").glob("*.sources")):
        for entry in re.split(r"\n\s*\n", file.read_text(encoding="utf-8")):
            lines = [line for line in entry.splitlines() if line.strip() and not line.startswith("#")]
            if lines and not any(re.match(r"enabled:\s*no", line, re.IGNORECASE) for line in lines):
                yield "\n".join(re.sub(r"(?i)^types:.*", "Types: deb-src", line) for line in lines) + "\n"
    for file in (etc / "sources.list", *sorted((etc / "sources.list.d").glob("*.list"))):
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            if match := re.match(r"deb\s+(?:\[(.*?)\]\s+)?(\S+)\s+(\S+)\s*([^#]*)", line.strip()):
                options, address, suite, components = match.groups()
                signed = re.search(r"signed-by=(\S+)", options or "")
                words = [f"Types: deb-src\nURIs: {address}\nSuites: {suite}"]
                words += [f"Components: {components.strip()}"] if components.strip() else []
                yield "\n".join([*words, *([f"Signed-By: {signed[1]}"] if signed else [])]) + "\n"


def build(sources: Path, beside: Path) -> Path:
    """Build the programs; the folder that holds them."""
    began = time.monotonic()
    cache = Path(os.environ.get("BERTH_GOCACHE") or beside / "gocache")
    variables = {
        "PATH": f"{GO}:{os.environ.get('PATH', os.defpath)}",
        "GOPATH": str(beside / "go"),
        "GOCACHE": str(cache),
        "GOFLAGS": "",
        "CGO_ENABLED": "0",
        "GO111MODULE": "off",
    }
    say("generating code")
    generator = beside / "openapi-gen"
    main = "./vendor/k8s.io/kube-openapi/cmd/openapi-gen"
    go = GO / "go"
    run(
        go,
        "build",
        "-trimpath",
        "-buildvcs=false",
        "-o",
        generator,
        main,
        where=sources,
        why="the generator does not build",
        **variables,
    )
    header = "vendor/k8s.io/code-generator/hack/boilerplate.go.txt"
    arguments = ["-O", "zz_generated.openapi", "--go-header-file", header, "-i", ",".join(described(sources))]
    arguments += ["-p", f"{IMPORTS}/pkg/generated/openapi", "-r", str(beside / "violations")]
    run(generator, *arguments, where=sources, why="the generator fails", **variables)
    say("compiling (about ten minutes with two processors, once)")
    result = beside / "bin"
    result.mkdir()
    package = "k8s.io/component-base/version"
    version = {"gitVersion": f"v{VERSION}", "gitMajor": "1", "gitMinor": "20"}
    stamps = [f"-X {IMPORTS}/vendor/{package}.{name}={value}" for name, value in version.items()]
    flags = [
        "-trimpath",
        "-buildvcs=false",
        "-tags",
        TAGS,
        "-ldflags",
        " ".join(["-s -w", *stamps]),
        "-o",
        f"{result}/",
    ]
    programs = [f"./cmd/{program}" for program in PROGRAMS]
    run(go, "build", *flags, *programs, where=sources, why="Kubernetes does not build", **variables)
    say(f"built in {time.monotonic() - began:.0f} s")
    return result


def described(sources: Path) -> Iterator[str]:
    """Packages with types that the API describes, by the mark in their sources."""
    parts: Mapping[Path, str] = {sources / "pkg": f"{IMPORTS}/pkg"} | {
        part: f"{IMPORTS}/vendor/k8s.io/{part.name}"
        for part in sorted((sources / "vendor" / "k8s.io").iterdir())
        if part.is_dir() and part.name not in NOT_GENERATED
    }
    for part, name in parts.items():
        top = part.resolve()
        marked = {file.parent for file in top.rglob("*.go") if b"+k8s:openapi-gen=" in file.read_bytes()}
        yield from sorted(f"{name}/{one.relative_to(top)}".removesuffix("/.") for one in marked)


if __name__ == "__main__":
    if sys.argv[1:] == ["install"]:
        try:
            install()
        except OSError as error:
            sys.exit(f"kubernetes: {error}")
    elif sys.argv[1:] == ["where"]:
        print(folder())
    else:
        sys.exit(__doc__)
