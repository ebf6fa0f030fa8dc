"""The arguments that describe a workload: taken, templated, read from files, and checked while the DAG is parsed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from airflow_mlxp import compat
from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests import documents, wire
from airflow_mlxp.manifests.spec import WorkloadSpec
from airflow_mlxp.manifests.unset import UNSET, Unset
from airflow_mlxp.operators import arguments, outcomes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk.definitions.context import Context

    from airflow_mlxp.manifests.spec import BuiltManifest, Env, Volume
    from airflow_mlxp.quantity import Quantity

_ARGUMENTS = tuple(field.name for field in dataclasses.fields(WorkloadSpec))


class DescribedOperator(BaseOperator):
    """What operators of all kinds are told about their workload; ``manifests.spec.WorkloadSpec`` says more about each argument.

    Args:
        name: first part of the workload's name; ``"exact"`` keeps the manifest's name as it is.
        namespace: default: the manifest's, else the connection's.
        manifest: a manifest to start from: mapping, object of the ``kubernetes`` package, YAML or JSON text, or the name of a
            ``.yaml``, ``.yml`` or ``.json`` file beside the DAG or in ``template_searchpath``; its content is a template.
        templated: False keeps Jinja away from ``manifest``.
        overrides: strategic merge patch over the result.
        image: of the training container, as all up to ``ports``.
        command: replaces the image's entrypoint.
        args: of the command.
        env: values by name, ``{"NAME": {"secretKeyRef": {...}}}``, or a list as in a manifest.
        env_from: whole Secrets and ConfigMaps.
        debug: verbose NCCL and torch.distributed (guide, debug a PyTorchJob).
        cpu: cores, as limit and request.
        memory: such as ``"16Gi"``, as limit and request.
        gpus: ``nvidia.com/gpu`` of each replica.
        working_dir: of the command.
        image_pull_policy: ``Always`` by default.
        security_context: Container.securityContext.
        ports: numbers or ContainerPorts.
        image_pull_secrets: names of docker-registry secrets.
        volumes: mount path to the name of a PersistentVolumeClaim, a ``Volume``, or a volume source.
        shared_memory: ``/dev/shm``: True, False or a size.
        zone: GPU zone; default: the connection's.
        infiniband: capability IPC_LOCK (guide, InfiniBand).
        node_selector: labels of nodes.
        tolerations: of the pods.
        affinity: PodSpec.affinity.
        priority_class: PodSpec.priorityClassName.
        queue_name: Kueue LocalQueue.
        service_account: of the pods.
        pod_security_context: PodSpec.securityContext.
        run_as: UID, or ``"uid:gid"``.
        init_containers: run to their end before the training starts.
        sidecars: run beside the training and are stopped after it.
        labels: of the object and its pods.
        annotations: of the object and its pods.
        restart_policy: of the pods' containers.
        ttl_seconds_after_finished: how long a finished workload is kept; None: for ever.
        backoff_limit: retries of failed pods (Job), container restarts of all replicas together (PyTorchJob).
        active_deadline_seconds: after which Kubernetes stops the workload.
        grace_seconds: between SIGTERM and SIGKILL when pods are stopped; default: the manifest's, else 30.
        suspend: create it, but start no pods until somebody resumes it.
        kwargs: Airflow's own arguments of a task.
    """

    kind: ClassVar[str]
    """Kind of the workload, as in manifests."""
    parts: ClassVar[tuple[str, ...]] = ()
    """Template fields, the last ones, that only show a part of the manifest: named ``manifest_<part>``."""
    template_fields: Sequence[str] = (*(name for name in _ARGUMENTS if name != "manifest"), "manifest")
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "manifest": "yaml",
        "overrides": "json",
        "env": "json",
        "args": "json",
        "command": "json",
        **dict.fromkeys(
            ("manifest_metadata", "manifest_policy", "manifest_template", "manifest_master", "manifest_worker"), "yaml"
        ),
    }

    def __init__(
        self,
        *,
        name: str | None = None,
        namespace: str | None = None,
        manifest: Mapping[str, Any] | str | object | None = None,
        templated: bool = True,
        overrides: Mapping[str, Any] | None = None,
        image: str | None = None,
        command: Sequence[str] | None = None,
        args: Sequence[str] | None = None,
        env: Env | None = None,
        env_from: Sequence[Mapping[str, Any]] = (),
        debug: bool | str = False,
        cpu: Quantity | None = None,
        memory: Quantity | None = None,
        gpus: int | str | None = None,
        working_dir: str | None = None,
        image_pull_policy: str | Unset | None = UNSET,
        image_pull_secrets: Sequence[str] = (),
        volumes: Mapping[str, str | Volume | Mapping[str, Any]] | None = None,
        shared_memory: bool | str | Unset | None = UNSET,
        zone: str | None = None,
        infiniband: bool | str = False,
        node_selector: Mapping[str, str] | None = None,
        tolerations: Sequence[Mapping[str, Any]] = (),
        affinity: Mapping[str, Any] | None = None,
        priority_class: str | None = None,
        queue_name: str | None = None,
        service_account: str | None = None,
        security_context: Mapping[str, Any] | None = None,
        pod_security_context: Mapping[str, Any] | None = None,
        run_as: int | str | None = None,
        ports: Sequence[int | str | Mapping[str, Any]] = (),
        init_containers: Sequence[Mapping[str, Any]] = (),
        sidecars: Sequence[Mapping[str, Any]] = (),
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        restart_policy: str | Unset | None = UNSET,
        ttl_seconds_after_finished: int | str | Unset | None = UNSET,
        backoff_limit: int | str | Unset | None = UNSET,
        active_deadline_seconds: int | str | None = None,
        grace_seconds: int | str | None = None,
        suspend: bool | str = False,
        **kwargs: Any,
    ) -> None:
        given = locals()
        super().__init__(**kwargs)
        for argument in _ARGUMENTS:
            setattr(self, argument, given[argument])
        self.namespace, self.zone = namespace, zone
        self.templated = templated
        self.manifest: Any = manifest if templated else arguments.Verbatim(manifest)
        for part in self.parts:
            setattr(self, part, arguments.ManifestPart(part))
        arguments.set_upstream(self, (getattr(self, name) for name in self.template_fields))
        self.check_arguments()

    # What a kind adds

    def spec_type(self) -> type[WorkloadSpec]:
        """The class of the kind's arguments."""
        raise NotImplementedError

    def build(self, spec: Any, *, namespace: str) -> BuiltManifest:
        """The manifest of these arguments."""
        raise NotImplementedError

    def parts_of(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """The parts of a built manifest by their names in ``parts``."""
        raise NotImplementedError

    # From arguments to a spec

    def spec(self, **changed: Any) -> WorkloadSpec:
        """The arguments as they are now, as the kind's spec."""
        return arguments.spec(self.spec_type(), self, manifest=arguments.verbatim(self.manifest), **changed)

    def check_arguments(self) -> None:
        """Build once with what is known: a mistake shows as an import error of the DAG, not at three in the morning.

        Raises:
            InvalidArgument: an argument that isn't templated can't be.
        """
        given = [getattr(self, name) for name in self.template_fields if name not in self.parts]
        if not arguments.can_be_checked(given):
            return
        manifest = arguments.verbatim(self.manifest)
        if arguments.is_file_name(manifest):
            if self.get_dag() is None or arguments.is_template(manifest):
                return
            manifest = self._read(manifest)
        spec = arguments.spec(self.spec_type(), self, manifest=manifest)
        # Errors about env don't show it: it may hold secrets.
        texts = (spec.overrides, manifest if self.templated else None, spec.env if isinstance(spec.env, str) else None)
        with arguments.templates_excused(*texts):
            self.build(spec, namespace="unknown")

    def resolve_template_files(self) -> None:
        """Put the content of the manifest's file in the place of its name: it is rendered, and shown, as a template."""
        super().resolve_template_files()
        name = arguments.verbatim(self.manifest)
        if arguments.is_file_name(name) and not arguments.is_template(name):
            content = self._read(name)
            self.manifest = content if self.templated else arguments.Verbatim(content)

    def read_manifest(self, context: Context) -> None:
        """The same at execution, for a name that only rendering has told, as in mapped tasks."""
        self.manifest = arguments.verbatim(self.manifest)
        if arguments.is_file_name(self.manifest):
            content = self._read(self.manifest)
            self.manifest = self.render_template(content, context) if self.templated else content

    def manifest_part(self, name: str, context: Context) -> str:
        """One part of the manifest, for people; the connection's namespace and the workload's final name are not known yet."""
        import yaml

        try:
            self.read_manifest(context)
            built = self.build(self.spec(), namespace=self.namespace or "(the connection's)")
        except InvalidArgument as error:
            return str(error)
        self.mask_secrets(built)
        part = self.parts_of(built.manifest).get(name)
        return yaml.safe_dump(part, sort_keys=False, width=130) if part else ""

    def mask_secrets(self, built: BuiltManifest) -> None:
        """Keep the values of variables with names such as API_KEY out of logs and rendered fields."""
        for secret in arguments.secrets_in(built.manifest):
            compat.mask(secret)

    def render_template(self, content: Any, context: Context, jinja_env: Any = None, seen_oids: set[int] | None = None) -> Any:
        """As Airflow's; ``Volume``, ``Elastic`` and objects of the ``kubernetes`` package are rendered inside.

        Text that Jinja can't read is named, with the way to keep it from Jinja.
        """
        from jinja2 import TemplateSyntaxError

        if wire.is_model(content):
            content = wire.unwrapped(content)
        elif arguments.is_record(content):
            fields = {field.name: getattr(content, field.name) for field in dataclasses.fields(content)}
            rendered = {name: self.render_template(value, context, jinja_env, seen_oids) for name, value in fields.items()}
            return dataclasses.replace(content, **rendered)
        try:
            return super().render_template(content, context, jinja_env, seen_oids)
        except TemplateSyntaxError as error:
            raise AirflowFailException(outcomes.template_mistake(content, error.message or "", error.lineno)) from None

    def _read(self, name: str) -> str:
        from jinja2 import TemplateNotFound

        environment = self.get_template_env()
        if environment.loader is not None:
            try:
                return environment.loader.get_source(environment, name)[0]
            except TemplateNotFound:
                pass
        fix = "the name is relative to the folder of the DAG's file, or to the DAG's template_searchpath"
        raise InvalidArgument("manifest", name, expected=f"a file ({', '.join(documents.FILE_NAMES)}) that exists", fix=fix)
