"""`berth explain` and `berth kubernetes`: commands for clusters of Kubernetes, and the options that name one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from berth.cli.answers import Output, OutputOption, answered
from berth.cli.help import examples
from berth.errors import InvalidInput

if TYPE_CHECKING:
    from berth.live.engines.kubernetes.cluster import Cluster

__all__ = [
    "ContextOption",
    "FromOption",
    "KubeconfigOption",
    "Source",
    "explain_app",
    "kubernetes_app",
    "kubernetes_plans",
]

KubeconfigOption = Annotated[
    Path | None, typer.Option("--kubeconfig", help="Read the Kubernetes cluster of this kubeconfig.")
]
ContextOption = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig. Default: its own.")]
FromOption = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="FILE",
        help="Read a Kubernetes cluster from the output of kubectl get nodes,pods -A -o json; - reads standard input.",
    ),
]
NamespaceOption = Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the pod.")]


@dataclass(frozen=True)
class Source:
    """Where a Kubernetes cluster is read: a kubeconfig, or a file."""

    kubeconfig: Path | None = None
    context: str | None = None
    file: Path | None = None

    def read(self) -> Cluster:
        """Read its nodes and pods."""
        from berth.live.engines.kubernetes.cluster import read_cluster, read_live

        if self.file is None:
            return read_live(self.kubeconfig, self.context)
        if self.kubeconfig or self.context:
            raise InvalidInput("--from, or --kubeconfig and --context, not both", found="both")
        if str(self.file) == "-":
            return read_cluster(sys.stdin.buffer.read(), "standard input")
        try:
            return read_cluster(self.file.read_bytes(), str(self.file))
        except OSError as error:
            raise InvalidInput("a file that can be read", found=str(error.strerror), file=self.file) from None


def kubernetes_plans(
    source: Source,
    given: tuple[str, str] | None,
    options: Mapping[str, Any],
    specs: Callable[[], list[dict[str, Any]]],
) -> list[dict[str, Any]]:
    """Plans for a Kubernetes cluster: of the objects in the text `given` (with its name), or of berth's own jobs."""
    from berth.live.core.specs import JobSpec
    from berth.live.engines.kubernetes.manifests import gang_of_job, is_kubernetes, read_gangs
    from berth.live.engines.kubernetes.plan import plan_gangs

    if given is not None and given[1] == "standard input" and str(source.file) == "-":
        raise InvalidInput("standard input for one of -f and --from", found="both")
    if given is not None and is_kubernetes(*given):
        said = [key for key, value in options.items() if value is not None]
        if said:
            expected = "no options of a job beside a file of Kubernetes objects"
            raise InvalidInput(expected, found=f"--{said[0].replace('_', '-')}", file=given[1])
        gangs = read_gangs(*given)
        cluster = source.read()
    else:
        jobs = [JobSpec.model_validate(spec) for spec in specs()]
        cluster = source.read()
        named = [job.job(job.name or f"job-{i}", "nobody") for i, job in enumerate(jobs, 1)]
        gangs = [gang_of_job(job, cluster.resources) for job in named]
    return [plan.as_dict() for plan in plan_gangs(cluster, gangs)]


class _Explained(TyperGroup):
    """`berth explain`; a job instead of `pod` is answered with the command for jobs."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            ctx.fail(f"No such command {args[0]!r}. Did you mean 'berth job explain'?")
        return super().resolve_command(ctx, args)


explain_app = typer.Typer(
    cls=_Explained,
    help="Explain why pods of a Kubernetes cluster wait.",
    epilog=examples("berth explain pod train-0 --namespace ml"),
    rich_markup_mode=None,
)


@explain_app.callback()
def _only_pods() -> None:
    """Explain why pods of a Kubernetes cluster wait."""


@explain_app.command(
    "pod",
    epilog=examples(
        "berth explain pod train-0 --namespace ml",
        "berth explain pod train-0 --from cluster.json",
    ),
)
def pod(
    name: Annotated[str, typer.Argument(help="Name of a pod.")],
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    from_: FromOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Explain why a pod waits for a node.

    The answer has the reason for every node, and the smallest change that would let the pod start together with the
    pods of its group. It needs no service, and the right to list nodes and pods. By default it reads the cluster that
    kubectl uses.

    Exit code: 0 explained; 2 bad input; 3 no cluster; 4 not allowed.
    """
    from berth.live.engines.kubernetes.plan import explain_pod

    plan = explain_pod(Source(kubeconfig, context, from_).read(), name, namespace)
    if not answered(plan.as_dict(), output):
        typer.echo(str(plan))


kubernetes_app = typer.Typer(
    help="Run berth beside the scheduler of Kubernetes.",
    epilog=examples("berth kubernetes release --dry-run"),
    rich_markup_mode=None,
)


@kubernetes_app.command("release", epilog=examples("berth kubernetes release --namespace ml --dry-run"))
def release_command(
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Only pods of this namespace. Default: all.")
    ] = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done.")] = False,
) -> None:
    """Let all pods go that wait for berth, without berth.

    Pods with berth's scheduling gate are left to kube-scheduler. Pods with `schedulerName: berth` are bound to nodes
    where they fit, with their group. Stop the service first, or it may place them as well.

    Exit code: 0 done; 2 bad input; 3 no cluster; 4 not allowed.
    """
    from berth.live.engines.kubernetes.letting_go import let_go
    from berth.live.kubernetes_api import connect

    api, count = connect(kubeconfig, context), 0
    try:
        for line in let_go(api, namespace, dry=dry_run):
            typer.echo(f"{line} (dry run)" if dry_run else line)
            count += 1
    finally:
        api.close()
    if not count:
        typer.echo("no pod waits for berth")


@kubernetes_app.command(
    "webhook",
    epilog=examples("berth kubernetes webhook --certificate tls.crt --key tls.key --service http://127.0.0.1:8642"),
)
def webhook_command(
    certificate: Annotated[Path, typer.Option("--certificate", help="Certificate of the webhook, as PEM.")],
    key: Annotated[Path, typer.Option("--key", help="Key of the certificate, as PEM.")],
    service: Annotated[str, typer.Option("--service", help="Address of the berth service.")] = "http://127.0.0.1:8642",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port to listen on.")] = 8443,
    all_pods: Annotated[bool, typer.Option("--all-pods", help="Hold all pods that are asked about.")] = False,
) -> None:
    """Serve the admission webhook that holds pods for berth.

    Pods are held only while the service is ready.
    """
    from berth.live.engines.kubernetes.webhook import Health, serve

    server = serve(port, certificate, key, Health(service), all_pods)
    typer.echo(f"webhook on port {port}", err=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()
