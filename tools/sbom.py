"""groupledger.cdx.json, which `make sbom` writes: the packages of jobs' lock with their licences, in CycloneDX. A
wheel has it in its .dist-info/sboms."""

import json
import re
from importlib.metadata import distribution
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, uuid5

ROOT: Final = Path(__file__).resolve().parent.parent
SBOM: Final = ROOT / "groupledger.cdx.json"
LOCK: Final = ROOT / "requirements.txt"
PACKAGE: Final = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)
IDS: Final = {
    "Apache Software License": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "MIT License": "MIT",
    "ISC License (ISCL)": "ISC",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
}
"""What packages without an SPDX expression declare -> its id."""


def locked() -> dict[str, str]:
    """Version of each package of the lock."""
    return dict(PACKAGE.findall(LOCK.read_text("utf-8")))


def licence_of(name: str) -> str:
    """The SPDX expression of an installed package's licence; empty where it declares none."""
    metadata = distribution(name).metadata
    if expression := metadata["License-Expression"]:
        return str(expression)
    classified = [it.rpartition(":: ")[2] for it in metadata.get_all("Classifier") or () if it.startswith("License")]
    declared = str(classified[0] if classified else metadata["License"] or "")
    return IDS.get(declared, declared)


def main() -> None:
    """Write the file: the same lock and packages give the same bytes."""
    from cyclonedx.model.bom import Bom  # noqa: PLC0415
    from cyclonedx.model.component import Component, ComponentType  # noqa: PLC0415
    from cyclonedx.model.license import LicenseExpression  # noqa: PLC0415
    from cyclonedx.output.json import JsonV1Dot6  # noqa: PLC0415
    from packageurl import PackageURL  # noqa: PLC0415

    components = [
        Component(
            name=name,
            version=version,
            type=ComponentType.LIBRARY,
            purl=PackageURL("pypi", name=name, version=version),
            bom_ref=f"{name}=={version}",
            licenses=[LicenseExpression(licence_of(name))],
        )
        for name, version in locked().items()
    ]
    bom = Bom(components=components, serial_number=uuid5(NAMESPACE_URL, LOCK.read_text("utf-8")))
    project = Component(name="groupledger", type=ComponentType.APPLICATION, bom_ref="groupledger")
    bom.metadata.component = project
    bom.register_dependency(project, components)
    made = json.loads(JsonV1Dot6(bom).output_as_string())
    del made["metadata"]["timestamp"]  # when it was written says nothing of what is in it
    SBOM.write_text(json.dumps(made, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
