"""The manifest for Kubernetes by its operator's own schema. No Kubernetes runs here."""

from __future__ import annotations

from typing import Any

import pytest
from support.building import CHECKOUT
from support.needs import PROGRAMS, needs

pytestmark = needs("dask", "ci-files", "dask-kubernetes")

CHARTS = PROGRAMS / "dask-kubernetes" / "dask_kubernetes" / "operator" / "deployment" / "helm"


def read(path: Any) -> Any:
    import yaml

    return yaml.safe_load(path.read_text("utf-8"))


def strict(schema: Any) -> Any:
    """Refuse what the schema does not name, as Kubernetes does when it is asked to be strict."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: strict(part) for name, part in schema.items()}
    is_open = kept.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in kept
    if isinstance(kept.get("properties"), dict) and not is_open:
        kept["additionalProperties"] = False
    return kept


@pytest.fixture(scope="module")
def manifest() -> Any:
    return read(CHECKOUT / "examples" / "kubernetes" / "cluster.yaml")


@pytest.fixture(scope="module")
def schema() -> Any:
    crd = read(CHARTS / "dask-kubernetes-operator" / "crds" / "daskcluster.yaml")
    (version,) = crd["spec"]["versions"]
    found = version["schema"]["openAPIV3Schema"]
    found["properties"].update({key: {"type": "string"} for key in ("apiVersion", "kind")})
    found["properties"]["metadata"] = {"type": "object"}
    found["properties"]["spec"] = strict(found["properties"]["spec"])
    return found


def test_the_operator_takes_the_manifest(manifest: Any, schema: Any) -> None:
    from jsonschema import Draft7Validator

    assert [error.message for error in Draft7Validator(schema).iter_errors(manifest)] == []
    pod = manifest["spec"]["worker"]["spec"]
    wrong = {**pod, "volumes": [{"name": "certificates", "secret": {"defaultMod": 256}}]}
    spoilt = {**manifest["spec"], "worker": {"replicas": 4, "spec": wrong}}
    assert list(Draft7Validator(schema).iter_errors({**manifest, "spec": spoilt}))


@pytest.mark.parametrize("part", ["scheduler", "worker"])
def test_edgekit_takes_the_words_of_a_pod(part: str, manifest: Any) -> None:
    from edgekit.cli import cluster as verbs
    from edgekit.cli import root

    pod = manifest["spec"][part]["spec"]
    (container,) = pod["containers"]
    program, group, verb, *words = container["args"]
    assert (program, group, verb) == ("edgekit", "cluster", part)
    # A command keeps its first help option: without the program's settings it would lack -h.
    context = getattr(verbs, part).make_context(part, words, **root.context_settings)
    (mount,), (volume,) = container["volumeMounts"], pod["volumes"]
    assert str(context.params["certificates"]) == mount["mountPath"]
    assert volume["secret"]["defaultMode"] == 0o400
    names = {item["path"] for item in volume["secret"]["items"]}
    assert names == {"ca.crt", f"{part}.crt", f"{part}.key"}
    address = context.params.get("address", "")
    service = manifest["spec"]["scheduler"]["service"]["ports"][0]["port"]
    assert (
        part == "scheduler"
        or address == f"tls://{manifest['metadata']['name']}-scheduler:{service}"
    )
