"""Plugins: ``FILE.py:Name`` is an object in a user's own file."""

import hashlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FunctionType, ModuleType

from regard.core.errors import RegardError, look_up


def is_part(spec: str) -> bool:
    """Return whether a name is ``FILE.py:Name`` and not a row of a table.

    >>> is_part("examples/my_score.py:Laplacian"), is_part("scaled-dot")
    (True, False)
    """
    return ".py:" in spec or spec.endswith(".py")


def parts_of(spec: str) -> list[str]:
    """Return the names that ``+`` joins, as in pattern=window-64+FILE.py:NAME.

    A file whose path has a ``+`` is one name.

    >>> parts_of("window-64+own.py:near"), parts_of("dot")
    (['window-64', 'own.py:near'], ['dot'])
    """
    whole = "+" not in spec or (is_part(spec) and _file(spec).exists())
    return [spec.strip()] if whole else [part.strip() for part in spec.split("+")]


def layers_of(names: str) -> list[str]:
    """Return the names of consecutive layers, which ``/`` separates and ``*`` repeats.

    Raises: a repetition that is no number. ``FILE.py:NAME`` is one name.

    >>> layers_of("window-512*2/none"), layers_of("rotary")
    (['window-512', 'window-512', 'none'], ['rotary'])
    """
    if is_part(names):
        return [names]
    layers: list[str] = []
    for part in names.split("/"):
        name, star, count = part.partition("*")
        if star and not (count.isdecimal() and int(count)):
            raise RegardError(f"{part!r} of {names!r} is no name and number of layers, NAME*3")
        layers += [name.strip()] * int(count or 1)
    return layers


def at_layer(names: str, layer: int) -> str:
    """Return the name of a layer, from 0; the names are repeated over the stack.

    >>> [at_layer("rotary*3/none", layer) for layer in range(5)]
    ['rotary', 'rotary', 'rotary', 'none', 'rotary']
    """
    layers = layers_of(names)
    return layers[layer % len(layers)]


def reads_trees(position: str) -> bool:
    """Return whether positions in some layer are those of words in a tree.

    >>> reads_trees("none/tree-keys"), reads_trees("rotary")
    (True, False)
    """
    return any(name.startswith("tree-") for name in layers_of(position))


def files_of(values: Iterable[object]) -> dict[str, Path]:
    """Return the file of each value that is ``FILE.py:Name``, by that name.

    >>> {name: str(path) for name, path in files_of(["dot", 8, "own/score.py:Mine"]).items()}
    {'own/score.py:Mine': 'own/score.py'}
    """
    named = [part for value in values if isinstance(value, str) for part in parts_of(value)]
    return {part: _file(part) for part in named if is_part(part)}


def absolute(name: str) -> str:
    """Return a name with the absolute path of its file if it is ``FILE.py:NAME``.

    A run stores it, so that it opens from every folder.

    >>> absolute("window-64"), absolute("own.py:near") == f"{Path.cwd() / 'own.py'}:near"
    ('window-64', True)
    """
    parts = parts_of(name)
    return "+".join(_absolute(part) for part in parts) if any(map(is_part, parts)) else name


def _absolute(part: str) -> str:
    file, colon, rest = part.rpartition(":")
    return f"{Path(file).resolve()}{colon}{rest}" if is_part(part) and colon else part


def _file(spec: str) -> Path:
    return Path(spec.rpartition(":")[0] or spec)


def short(name: str) -> str:
    """Return a name as a part of a folder's: of ``FILE.py:NAME`` the NAME.

    >>> short("examples/my_model.py:bag"), short("rnn")
    ('bag', 'rnn')
    """
    return name.rpartition(":")[2] if is_part(name) else name


def load_object(spec: str) -> object:
    """Return the object named by ``FILE.py:Name``; the file runs here, as an import would.

    `regard.core.tables.load` runs it only if it is trusted. Raises: the spec, the file or the name
    is not as it should be, or the file does not run.
    """
    file, colon, name = spec.rpartition(":")
    if not colon or not name or not file.endswith(".py"):
        raise RegardError(f"a part of your own is named FILE.py:Name, not {spec!r}")
    module = load_module(Path(file))
    if name in vars(module):
        return vars(module)[name]
    own = {key: value for key, value in vars(module).items() if _is_own(value, module.__name__)}
    if not own:
        raise RegardError(f"{file} defines no {name}: it defines no class or function at all")
    return look_up(own, name, f"part of {file}")


def _is_own(value: object, module: str) -> bool:
    """Return whether a module's value is defined there, or is an object of a regard class."""
    if isinstance(value, type | FunctionType):
        return getattr(value, "__module__", "") == module
    return type(value).__module__.partition(".")[0] in (module, "regard")


def load_module(path: Path) -> ModuleType:
    """Return the module of a file; the same object while its content is unchanged.

    The file can import others in its folder.
    """
    try:
        source = path.read_bytes()
    except OSError as error:
        raise RegardError(f"{path} cannot be read: {error.strerror}") from None
    digest = hashlib.sha256(path.resolve().as_posix().encode() + source).hexdigest()
    name = f"regard_part_{path.stem}_{digest[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = str(path)
    beside = str(path.resolve().parent)
    sys.modules[name] = module
    sys.path.append(beside)
    try:
        # Compiled here, since a compiled file kept beside it may be stale within a second.
        exec(compile(source, str(path), "exec"), module.__dict__)  # noqa: S102 - the user's own
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise RegardError(f"{path} does not run: {one_line(error, path)}") from error
    finally:
        sys.path.remove(beside)
    return module


def digests(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the sha256 of each file that settings name, by the plugin's name.

    >>> digests({"score": "dot", "width": 8})
    {}
    """
    hashes = {}
    for spec, path in files_of(settings.values()).items():
        try:
            hashes[spec] = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise RegardError(f"{path} cannot be read: {error.strerror}") from None
    return hashes


def changed(settings: Mapping[str, object], known: Mapping[str, str]) -> list[str]:
    """Return the plugins in settings whose files differ from `digests`."""
    now = digests(settings) if known else {}
    return [spec for spec, digest in known.items() if now.get(spec) != digest]


def one_line(error: BaseException, path: Path | None = None) -> str:
    """Return an error as one line: its kind, its first line, and its line in ``path``.

    >>> one_line(ValueError("too wide\\n  by far"))
    'ValueError: too wide'
    """
    words = str(error).strip().splitlines()
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if path is not None and trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    where = f" (line {line})" if line else ""
    return f"{type(error).__name__}{': ' + words[0] if words else ''}{where}"


def a(noun: str) -> str:
    """Return a noun with its article.

    >>> a("int"), a("function")
    ('an int', 'a function')
    """
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
