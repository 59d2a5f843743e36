"""Start the user's Python program so that it cannot tell, and record how it ends.

    python -u bootstrap.py BLACK_BOX_FD [learn|standby:CHANNEL_FD:PAPERS_FD] script|module|path TARGET [ARG ...]
    python -u bootstrap.py BLACK_BOX_FD function PAPERS_FD TRACKER_FD LEASH_FD

The agent runs this file as the main script of every Python worker. It imports only built-in modules (a user's `json.py`
must win over ours), makes `__main__`, `sys.argv`, `sys.path[0]` and tracebacks what a plain start would have made them,
and writes an uncaught exception, or the stacks at a fatal signal, into an anonymous file that the agent holds too. With
`learn` it writes down there which modules get loaded; a `standby` is promoted before, or while, the program runs.
"""

import atexit
import faulthandler
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

# `__file__` is taken away when the main program has ended, before what is done at exit.
_FOLDER = __file__.rpartition("/")[0]
DUMP_STACKS = 62  # SIGRTMAX-2; `contract.blackbox` has the same numbers, and a test compares them
LIFELINE = 3


def _run_script(path: str, namespace: "dict[str, Any]") -> None:
    with open(path, "rb") as file:
        code = compile(file.read(), namespace["__file__"], "exec", dont_inherit=True)
    exec(code, namespace)  # noqa: S102  running it is what we are here for


def _run_module(name: str, _namespace: "dict[str, Any]") -> None:
    import runpy

    runpy._run_module_as_main(name)  # type: ignore[attr-defined]  # noqa: SLF001  what `python -m` itself calls


def _run_path(path: str, _namespace: "dict[str, Any]") -> None:
    import runpy

    runpy.run_path(path, run_name="__main__")


def _run_function(papers: str, _namespace: "dict[str, Any]") -> int:
    """Do what a child of `multiprocessing` does after its start: read the papers, call the function (`process.functions`)."""
    from multiprocessing import resource_tracker, spawn

    tracker, leash = int(sys.argv[1]), int(sys.argv[2])
    for descriptor in (tracker, leash):
        sys.modules["os"].set_inheritable(descriptor, False)
    resource_tracker._resource_tracker._fd = tracker  # type: ignore[attr-defined]  # noqa: SLF001  as `spawn_main`
    status: int = spawn._main(int(papers), leash)  # noqa: SLF001
    return status  # it has told all there is to tell, so this is no error to record


_RUNNERS: "dict[str, Callable[[str, dict[str, Any]], int | None]]" = {
    "script": _run_script,
    "module": _run_module,
    "path": _run_path,
    "function": _run_function,
}


_AT_END: "list[Callable[[], None]]" = []


def _prepare(kind: str, target: str, args: "list[str]") -> "dict[str, Any]":
    """Make the interpreter's view of the command line and of `__main__` that of a plain start."""
    import os

    shown = ["-m", target] if kind == "module" else [target]
    typed = getattr(sys, "orig_argv", list(sys.argv))  # PYTHON_EXEC may be older than we are
    typed[:] = [*typed[: -len(sys.argv)], *shown, *args]
    sys.argv[:] = ["-m" if kind == "module" else target, *args]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.getcwd() if kind == "module" else os.path.dirname(os.path.realpath(target))
    old, main = sys.modules["__main__"], type(sys)("__main__")
    main.__dict__.update(__annotations__={}, __builtins__=__builtins__)
    if kind == "script":
        # The interpreter joins, and does not tidy up: `./x.py` keeps its dot in __file__ and in tracebacks.
        file = target if target[0] == "/" else f"{os.getcwd()}/{target}"
        main.__dict__.update(__loader__=type(old.__loader__)("__main__", file), __file__=file, __cached__=None)  # type: ignore[misc, call-arg]  # the loader of any source file
    sys.modules["__main__"] = main
    return main.__dict__


def _without_our_frames(trace: "TracebackType | None") -> "TracebackType | None":
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)


def _hide_our_frames(hook: "Callable[..., Any]") -> "Callable[..., Any]":
    """Wrap the exception hook in force, so that our frames are not in what it prints, nor in what it fails with."""

    def shown(kind: "type[BaseException]", error: BaseException, _trace: object) -> None:
        sys.excepthook = hook
        trace = sys.last_traceback = error.__traceback__ = _without_our_frames(error.__traceback__)
        try:
            hook(kind, error, trace)
        except SystemExit:
            raise
        except BaseException as problem:  # noqa: BLE001  the interpreter does the same, in the same words
            _say("Error in sys.excepthook:\n")
            problem.__traceback__ = _without_our_frames(problem.__traceback__)
            sys.__excepthook__(type(problem), problem, problem.__traceback__)
            _say("\nOriginal exception was:\n")
            sys.__excepthook__(kind, error, trace)

    return shown


def _hook_without_words(kind: "type[BaseException]", error: BaseException, trace: "TracebackType | None") -> None:
    """Stand in for a hook that the program has deleted, as the interpreter does."""
    del sys.excepthook
    _say("sys.excepthook is missing\n")
    sys.__excepthook__(kind, error, trace)


def _load(name: str) -> "dict[str, Any]":
    """Run another file of ours by its path, so that nothing is imported; return its names."""
    names: dict[str, Any] = {"__name__": f"planaria_{name}"}
    with open(f"{_FOLDER}/{name}.py", "rb") as file:
        exec(compile(file.read(), file.name, "exec", dont_inherit=True), names)  # noqa: S102  our own file
    return names


def _record(black_box: int, error: BaseException) -> None:
    """Load the recorder only now: a worker that ends well never pays for it. An exit with status 0 is a good end, too."""
    try:
        if _load("crash")["record"](black_box, error, _without_our_frames(error.__traceback__)):
            atexit.register(_mark_end, black_box)
    except BaseException:  # noqa: BLE001  the user's error must surface whatever happens to our record of it
        return


def _wait_for_last_work() -> None:
    """Let the threads of a process group come to rest before the interpreter ends; the last of what is done at exit.

    A program that uses `planaria.worker` has done so by itself.
    """
    if "torch.distributed" not in sys.modules or "planaria.worker.last_work" in sys.modules:
        return
    try:
        _load("last_work")["wait_for_gloo"]()
    except OSError:  # our own file is gone: the program has ended, and well
        return


def _sign(black_box: int) -> None:
    """Say when this worker began to run: a restart counts until then. `contract.blackbox` reads it."""
    import os
    import time

    try:
        os.write(black_box, b'\x1e{"started":%r}\n' % time.monotonic())
    except OSError:  # a limit on the size of files; nobody depends on it
        return


def _mark_end(black_box: int) -> None:
    """Say that the program was over: whoever is killed later, in what Python does at exit, has done its work.

    The first thing that is done there, behind the end of all threads that Python waits for: they may be the program.
    """
    import os

    try:
        os.write(black_box, b"\x1eended\n")
    except OSError:  # as above
        return


def _wait(standby: "Any", black_box: int) -> None:
    """Stand by; as the worker, begin its black box with what the standby's own had learned."""
    import os

    _AT_END[-1]()  # while there is time
    learned = standby.wait()
    _sign(black_box)
    standby.restart_clock()
    os.write(black_box, learned)
    _call_witness()


def _offer_join(black_box: int, standby: "Any", main_file: "Callable[[], str]") -> None:
    """Give `planaria.worker.join` something to find: in a standby it waits, in a worker it says that this program joins.

    It says how long that took as well: one day a standby may come here much later, or never.
    """
    import os
    import time

    told, begun = False, time.monotonic()

    def join() -> None:
        nonlocal told
        after_s = time.monotonic() - begun if standby is None else standby.age_s()
        if is_waiting():
            standby.arrive()
            standby.preload()
            _wait(standby, black_box)
        if not told:
            told = True
            os.write(black_box, b"\x1ejoins\0%r\0%b\n" % (after_s, os.fsencode(main_file())))

    def is_waiting() -> bool:
        return standby is not None and standby.waiting

    # Nothing of ours is imported, so there is no better place.
    sys._planaria_join, sys._planaria_waits = join, is_waiting  # type: ignore[attr-defined]  # noqa: SLF001


def _hold_lifeline() -> None:
    """Keep the agent's pipe to this process alone: its end is to be heard of when it ends, not when its children do."""
    import os

    def drop() -> None:
        try:
            found = os.fstat(LIFELINE)
            if (found.st_dev, found.st_ino) == (pipe.st_dev, pipe.st_ino):  # the program may have closed ours
                os.close(LIFELINE)
        except OSError:
            return

    try:
        os.set_inheritable(LIFELINE, False)
        pipe = os.fstat(LIFELINE)
    except OSError:
        return
    os.register_at_fork(after_in_child=drop)


def _call_witness() -> None:
    """Have somebody beside the training who can say which collectives it is in, where torch writes that down."""
    environ = sys.modules["os"].environ
    control = environ.get("PLANARIA_CONTROL")
    # The names of `witness.SWITCHES`, which a worker without them does not load.
    if control and ("TORCH_FR_BUFFER_SIZE" in environ or "TORCH_NCCL_TRACE_BUFFER_SIZE" in environ):
        witness = _load("witness")
        if witness["is_wanted"](environ):
            witness["begin"](control, environ.get("RANK", "0"))


def _get_ready(mode: str, black_box: int) -> None:
    """Be a standby first, if that is wanted; then the worker. What is loaded is written down meanwhile."""
    if not mode:
        _sign(black_box)
        return
    _hold_lifeline()
    word, _, descriptors = mode.partition(":")
    if word == "learn":
        _sign(black_box)  # its place is at the beginning
    learning = _load("learn")
    _AT_END.append(learning["learn"](black_box))
    standby = None
    if word == "standby":
        standby = _load("standby")["Standby"](descriptors, black_box, learning, _load("early"))
    _offer_join(black_box, standby, learning["main_file"])
    if standby is not None and standby.mode == "preload":
        standby.preload()
        _wait(standby, black_box)


def _start() -> None:
    black_box, mode, words = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    if mode in _RUNNERS:
        mode, words = "", [mode, *words]
    kind, target, args = words[0], words[1], words[2:]
    namespace = _prepare(kind, target, args)
    system = sys.modules["os"]
    worker = system.getpid()
    system.set_inheritable(black_box, False)
    if not faulthandler.is_enabled():  # PYTHONFAULTHANDLER wins
        faulthandler.enable(file=black_box)
    faulthandler.register(DUMP_STACKS, file=black_box)
    atexit.register(_wait_for_last_work)
    if "PLANARIA_CHAOS" in system.environ:
        _load("chaos")["listen"](system.environ["PLANARIA_CHAOS"])
    _get_ready(mode, black_box)
    if not mode.startswith("standby"):
        _call_witness()
    try:
        status = _RUNNERS[kind](target, namespace)
    except BaseException as error:
        if system.getpid() == worker:  # a forked child has the black box too, and its end is not the worker's
            _record(black_box, error)
        sys.excepthook = _hide_our_frames(getattr(sys, "excepthook", _hook_without_words))
        raise
    finally:
        for finish in _AT_END:
            finish()
    if status:
        sys.exit(status)
    if system.getpid() == worker:
        atexit.register(_mark_end, black_box)


_start()
