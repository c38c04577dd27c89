"""YAML as experiments have it: the words of YAML 1.2, and what is written is what is read again."""

import re
from typing import TYPE_CHECKING, Any

import yaml

_NUMBER_STARTS = list("-+.0123456789")
_FLOAT = re.compile(
    r"[-+]?(\d[\d_]*(\.\d*)?|\.\d+)[eE][-+]?\d+$"
    r"|[-+]?(\d[\d_]*\.\d*|\.\d+)$"
    r"|[-+]?\.(inf|Inf|INF)$"
    r"|\.(nan|NaN|NAN)$"
)
_INT = re.compile(r"[-+]?\d[\d_]*$|0o[0-7]+$|0x[0-9a-fA-F]+$")
_BOOL = re.compile(r"(true|True|TRUE|false|False|FALSE)$")
_NULL = re.compile(r"(~|null|Null|NULL|)$")


if TYPE_CHECKING:
    from yaml import SafeLoader as _SafeLoader
else:  # libyaml's is several times as fast, where PyYAML has it
    _SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SafeLoader):
    """Loader of plain data with the words of YAML 1.2's core schema.

    So `010` is ten, `1:30` and `2024-05-01` are texts, `yes` and `no` are texts, and 1e-4 is a
    number. Underscores in numbers are allowed. A key that is there twice is refused.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key that is a list or a mapping", key_node.start_mark
                )
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key_node.value!r} twice", key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        text = str(self.construct_scalar(node)).replace("_", "")
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


class _Dumper(yaml.SafeDumper):
    """Dumper that quotes every text which YAML 1.1 or 1.2 would read as something else."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {  # noqa: RUF012
        key: list(resolvers) for key, resolvers in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }

    def ignore_aliases(self, data: Any) -> bool:
        return True


_TAG = "tag:yaml.org,2002:"
for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver(f"{_TAG}bool", _BOOL, list("tTfF"))
    _kind.add_implicit_resolver(f"{_TAG}float", _FLOAT, _NUMBER_STARTS)
    _kind.add_implicit_resolver(f"{_TAG}int", _INT, _NUMBER_STARTS)
    _kind.add_implicit_resolver(f"{_TAG}null", _NULL, ["~", "n", "N", ""])
_Loader.add_implicit_resolver(f"{_TAG}merge", re.compile(r"<<$"), ["<"])
_Loader.add_constructor(f"{_TAG}int", _Loader.construct_yaml_int)


def load_yaml(text: str) -> Any:
    """Return the plain data of a YAML text.

    Raises:
        yaml.YAMLError: the text is not YAML, or has a key twice.
    """
    return yaml.load(text, _Loader)  # a SafeLoader: plain data only


def dump_yaml(data: Any, in_one_line: bool = False) -> str:
    """Return YAML of plain data, which `load_yaml` reads as the same."""
    width = 1_000_000 if in_one_line else 100
    return yaml.dump(
        data, Dumper=_Dumper, sort_keys=False, width=width, default_flow_style=in_one_line
    )
