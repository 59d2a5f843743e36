"""The one table of wrong command lines and what the user is told. `docs/bad-input.md` is made from it:

python tests/unit/launch/bad_input.py > docs/bad-input.md
"""

# ruff: noqa: E501  (a row is a command line and its sentence; both stay whole)
from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, NamedTuple

from planaria.agent import credentials
from planaria.errors import UsageError
from planaria.launch import numa
from planaria.launch.devices import Counts
from planaria.launch.logs_specs import with_specs
from planaria.launch.owner_flags import read_flags
from planaria.launch.parse import parse
from planaria.launch.plan import Machine, needs, plan
from planaria.launch.script import check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

HOME = "/home/you"


class Row(NamedTuple):
    """A command line, the variables that matter, and the one sentence."""

    argv: list[str]
    environ: dict[str, str]
    sentence: str
    command: str = "run"


TABLE: tuple[Row | str, ...] = (
    "Finding the flag",
    Row(["--nproc-pre-node=2", "ok.py"], {}, "there is no flag '--nproc-pre-node' (did you mean --nproc-per-node?)"),
    Row(["--nnode_s=1", "ok.py"], {}, "there is no flag '--nnode_s' (did you mean --nnodes?)"),
    Row(["--report=out.json", "ok.py"], {}, "there is no flag '--report' (did you mean --report-file?)"),
    Row(["-x", "ok.py"], {}, "there is no flag '-x' (--help lists them all)"),
    Row(["-mx", "pkg"], {}, "-m takes no value, got 'x'"),
    Row(["--no", "ok.py"], {}, "'--no' could mean any of --no-python, --node-rank"),
    Row(
        ["--rdzv=c10d", "ok.py"],
        {},
        "'--rdzv' could mean any of --rdzv-backend, --rdzv-conf, --rdzv-endpoint, --rdzv-id",
    ),
    Row(
        ["--=1", "ok.py"],
        {},
        "'--' could mean any of --duplicate-stderr-filters, --duplicate-stdout-filters, --event-log-handler, --help, --local-addr, --local-ranks-filter, ...",
    ),
    Row(["--nproc-per-node"], {}, "--nproc-per-node expects a value, got nothing"),
    Row(
        ["--role", "--tee", "3", "ok.py"],
        {},
        "--role expects a value, got '--tee' (write --role=VALUE if the value starts with a dash)",
    ),
    Row(["--role", "--", "ok.py"], {}, "--role expects a value, got '--'"),
    Row(["--standalone=1", "ok.py"], {}, "--standalone takes no value, got '1'"),
    Row(["-m=x", "pkg"], {}, "-m takes no value, got 'x'"),
    Row(["--\x1b[31mred", "ok.py"], {}, "there is no flag '--\\x1b[31mred' (--help lists them all)"),
    "Finding the script",
    Row([], {}, "no script was named (usage: planaria run [flags] script [arguments]; --help tells more)"),
    Row(
        ["--standalone"], {}, "no script was named (usage: planaria run [flags] script [arguments]; --help tells more)"
    ),
    Row(["--"], {}, "no script was named (usage: planaria run [flags] script [arguments]; --help tells more)"),
    Row(["missing.py"], {}, "there is no script 'missing.py' in '/home/you'"),
    Row(["train"], {}, "there is no script 'train' in '/home/you' (is it a module? then add -m)"),
    Row([""], {}, "the script's name is empty (every worker has to read it: name a file)"),
    Row(["-"], {}, "a script from standard input (-) is not supported (every worker has to read it: name a file)"),
    Row(["broken.py"], {}, "the script does not compile: line 2 of 'broken.py': '(' was never closed"),
    Row(["nulls.py"], {}, "the script 'nulls.py' contains null bytes: it is not Python source (--no-python?)"),
    Row(["empty_dir"], {}, "the script 'empty_dir' is a directory without a __main__.py"),
    Row(["/dev/null"], {}, "the script '/dev/null' is not a regular file (every worker has to read it: name a file)"),
    Row(["--no-python", "nosuchprogram"], {}, "--no-python: there is no program 'nosuchprogram' on PATH"),
    Row(
        ["--no-python", "data.txt"],
        {},
        "--no-python: there is no program 'data.txt' on PATH (write ./data.txt for the one in this directory)",
    ),
    Row(["--no-python", "./data.txt"], {}, "the program './data.txt' is not executable"),
    Row(["--no-python", "./missing.sh"], {}, "the program './missing.sh' does not exist"),
    Row(["-m", "nosuchmodule_here"], {}, "-m: there is no module 'nosuchmodule_here' in '/home/you' or on sys.path"),
    Row(["-m", "ok.py"], {}, "-m expects a module name, got the file 'ok.py' (leave -m out, or .py)"),
    Row(["-m", ".relative"], {}, "-m expects an absolute module name, got '.relative'"),
    Row(["--no-python", "-m", "pkg"], {}, "--no-python and --module exclude each other"),
    Row(["ok.py"], {"PYTHON_EXEC": "nosuchpython"}, "PYTHON_EXEC names no program on PATH, got 'nosuchpython'"),
    Row(["ok.py"], {"PYTHON_EXEC": "./data.txt"}, "PYTHON_EXEC='./data.txt' is not executable"),
    "Workers",
    Row(
        ["--nproc-per-node=0", "ok.py"],
        {},
        "--nproc-per-node expects a number of workers from 1 to 4194304, or auto, cpu, gpu, xpu, got '0'",
    ),
    Row(
        ["--nproc-per-node=-1", "ok.py"],
        {},
        "--nproc-per-node expects a number of workers from 1 to 4194304, or auto, cpu, gpu, xpu, got '-1'",
    ),
    Row(
        ["--nproc-per-node=two", "ok.py"],
        {},
        "--nproc-per-node expects a number of workers from 1 to 4194304, or auto, cpu, gpu, xpu, got 'two'",
    ),
    Row(
        ["--nproc-per-node=1.5", "ok.py"],
        {},
        "--nproc-per-node expects a number of workers from 1 to 4194304, or auto, cpu, gpu, xpu, got '1.5'",
    ),
    Row(
        ["--nproc-per-node=99999999999", "ok.py"],
        {},
        "--nproc-per-node expects a number of workers from 1 to 4194304, or auto, cpu, gpu, xpu, got '99999999999'",
    ),
    Row(["--nproc-per-node=gpu", "ok.py"], {}, "--nproc-per-node expects a visible GPU for 'gpu', got none"),
    Row(["--nproc-per-node=xpu", "ok.py"], {}, "--nproc-per-node expects a visible XPU for 'xpu', got none"),
    Row(
        ["ok.py"],
        {"PET_NPROC_PER_NODE": "many"},
        "PET_NPROC_PER_NODE expects a number of workers from 1 to 4194304, or auto, cpu, gpu, xpu, got 'many'",
    ),
    Row(["--max-restarts=-1", "ok.py"], {}, "--max-restarts expects 0 or more restarts, got '-1'"),
    Row(["--max-restarts=often", "ok.py"], {}, "--max-restarts expects a whole number, got 'often'"),
    Row(["ok.py"], {"PET_MAX_RESTARTS": "1.5"}, "PET_MAX_RESTARTS expects a whole number, got '1.5'"),
    Row(["--monitor-interval=0", "ok.py"], {}, "--monitor-interval expects seconds above 0, got '0.0'"),
    Row(["--monitor-interval=nan", "ok.py"], {}, "--monitor-interval expects seconds above 0, got 'nan'"),
    Row(["--monitor-interval=fast", "ok.py"], {}, "--monitor-interval expects a number, got 'fast'"),
    Row(["--start-method=vfork", "ok.py"], {}, "--start-method expects one of spawn, fork, forkserver, got 'vfork'"),
    Row(
        ["ok.py"], {"PET_START_METHOD": "vfork"}, "PET_START_METHOD expects one of spawn, fork, forkserver, got 'vfork'"
    ),
    Row(
        ["--numa-binding=near", "ok.py"],
        {},
        "--numa-binding expects one of node, socket, exclusive, core-complex, got 'near'",
    ),
    Row(["--numa-binding=node", "ok.py"], {}, "--numa-binding=node needs GPUs, and none is visible"),
    Row(["ok.py"], {"PET_STANDALONE": "yes"}, "PET_STANDALONE expects 0 or 1, got 'yes'"),
    Row(["ok.py"], {"PET_MODULE": "2"}, "PET_MODULE expects 0 or 1, got '2'"),
    Row(
        ["--virtual-local-rank", "--nproc-per-node=4", "ok.py"],
        {"CUDA_VISIBLE_DEVICES": "0,1"},
        "--virtual-local-rank expects a device for each of 4 workers, got CUDA_VISIBLE_DEVICES='0,1'",
    ),
    "Nodes",
    Row(["--nnodes=0", "ok.py"], {}, "--nnodes expects at least one node and MIN not above MAX, got '0'"),
    Row(["--nnodes=2:1", "ok.py"], {}, "--nnodes expects at least one node and MIN not above MAX, got '2:1'"),
    Row(["--nnodes=1:2:3", "ok.py"], {}, "--nnodes expects a number of nodes or MIN:MAX, got '1:2:3'"),
    Row(["--nnodes=all", "ok.py"], {}, "--nnodes expects a number of nodes or MIN:MAX, got 'all'"),
    Row(["--standalone", "--nnodes=2", "ok.py"], {}, "--standalone is one node by itself; --nnodes expects 1, got '2'"),
    Row(["--node-rank=1", "--master-port=29500", "ok.py"], {}, "--node-rank expects 0 on one node, got '1'"),
    Row(["--nnodes=2", "--node-rank=2", "ok.py"], {}, "--node-rank expects a rank from 0 to 1, got '2'"),
    Row(["--nnodes=2", "--node-rank=-1", "ok.py"], {}, "--node-rank expects a rank from 0 to 1, got '-1'"),
    Row(
        ["--nnodes=1:4", "ok.py"],
        {},
        "--nnodes expects one number with the static rendezvous, got '1:4' (MIN:MAX needs --rdzv-backend=c10d)",
    ),
    Row(
        ["ok.py"],
        {"PET_NNODES": "2:4"},
        "PET_NNODES expects one number with the static rendezvous, got '2:4' (MIN:MAX needs --rdzv-backend=c10d)",
    ),
    Row(
        ["--nnodes=2", "--master-port=65535", "ok.py"],
        {},
        "--master-port expects a port below 65535 (the agents meet one above it), got '65535'",
    ),
    Row(["--node-rank=first", "ok.py"], {}, "--node-rank expects a whole number, got 'first'"),
    Row(
        ["--rdzv-backend=zeus", "ok.py"],
        {},
        "--rdzv-backend expects one of static, c10d, embedded, etcd, etcd-v2 or an installed plugin (planaria.stores, not torchrun.handlers), got 'zeus'",
    ),
    Row(
        ["--nnodes=2", "--rdzv-backend=c10d", "ok.py"],
        {},
        "--rdzv-endpoint expects the address where the nodes meet, HOST[:PORT],..., got nothing",
    ),
    Row(
        ["--rdzv-backend=etcd", "ok.py"],
        {},
        "--rdzv-endpoint expects the address where the nodes meet, HOST[:PORT],..., got nothing",
    ),
    Row(
        ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=a:0", "ok.py"],
        {},
        "--rdzv-endpoint expects a port that every node knows, got 'a:0'",
    ),
    Row(
        ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=a,,b", "ok.py"],
        {},
        "--rdzv-endpoint expects a host name or an IP address, got ''",
    ),
    Row(
        ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=fe80::1", "ok.py"],
        {},
        "--rdzv-endpoint expects IPv6 addresses in brackets, as in [::1]:29400, got 'fe80::1'",
    ),
    Row(
        ["--rdzv-endpoint=http://db:2379", "ok.py"],
        {},
        "--rdzv-endpoint expects HOST[:PORT],... or etcd://HOST[:PORT]/RUN_ID, got 'http://db:2379'",
    ),
    Row(
        ["--rdzv-backend=etcd", "--rdzv-endpoint=me:secret@db:2379", "ok.py"],
        {},
        "--rdzv-endpoint expects HOST:PORT without a user name or password",
    ),
    Row(
        ["--rdzv-backend=c10d", "--rdzv-endpoint=etcd://db/job", "ok.py"],
        {},
        "--rdzv-endpoint with etcd:// expects --rdzv-backend=etcd, got 'c10d'",
    ),
    Row(
        ["--rdzv-endpoint=etcd:///job", "ok.py"],
        {},
        "--rdzv-endpoint expects etcd://HOST:PORT/RUN_ID?min_workers=N&max_workers=N, got 'etcd:///job'",
    ),
    Row(
        ["--rdzv-endpoint=etcd://db/job?min_workers=3&max_workers=1", "ok.py"],
        {},
        "--rdzv-endpoint min_workers:max_workers expects at least one node and MIN not above MAX, got '3:1'",
    ),
    Row(
        ["--rdzv-endpoint=etcd://db/job?workers=3", "ok.py"],
        {},
        "--rdzv-endpoint has no setting 'workers'",
    ),
    Row(
        ["--rdzv-backend=c10d", "--rdzv-endpoint=host:port", "ok.py"],
        {},
        "--rdzv-endpoint expects HOST:PORT with a port up to 65535, got 'host:port'",
    ),
    Row(
        ["--rdzv-backend=c10d", "--rdzv-endpoint=host:70000", "ok.py"],
        {},
        "--rdzv-endpoint expects HOST:PORT with a port up to 65535, got 'host:70000'",
    ),
    Row(
        ["--rdzv-endpoint=[::1]:99999", "ok.py"],
        {},
        "--rdzv-endpoint expects HOST:PORT with a port up to 65535, got '[::1]:99999'",
    ),
    Row(
        ["--rdzv-endpoint=my host:1", "ok.py"],
        {},
        "--rdzv-endpoint expects a host name or an IP address, got 'my host'",
    ),
    Row(["--rdzv-backend=c10d", "--rdzv-id=", "ok.py"], {}, "--rdzv-id expects a run id, got ''"),
    Row(["--rdzv-conf=timeout", "ok.py"], {}, "--rdzv-conf expects KEY=VALUE,KEY=VALUE,..., got 'timeout'"),
    Row(["--rdzv-conf=timeout=", "ok.py"], {}, "--rdzv-conf expects KEY=VALUE,KEY=VALUE,..., got 'timeout='"),
    Row(["--rdzv-conf==5", "ok.py"], {}, "--rdzv-conf expects KEY=VALUE,KEY=VALUE,..., got '=5'"),
    Row(
        ["--rdzv-conf=password=a,b", "ok.py"],
        {},
        "--rdzv-conf expects KEY=VALUE,KEY=VALUE,..., got 'password=...'",
    ),
    Row(
        ["--rdzv-conf=join_timout=5", "ok.py"],
        {},
        "--rdzv-conf has no setting 'join_timout' (did you mean join_timeout?)",
    ),
    Row(["--rdzv-conf=ttl=0.5", "ok.py"], {}, "--rdzv-conf ttl expects seconds from 1 to 86400, got '0.5'"),
    Row(["--rdzv-conf=ttl=3000000", "ok.py"], {}, "--rdzv-conf ttl expects seconds from 1 to 86400, got '3e+06'"),
    Row(["--rdzv-conf=ttl=soon", "ok.py"], {}, "--rdzv-conf ttl expects seconds, got 'soon'"),
    Row(
        ["--rdzv-conf=join_timeout=0", "ok.py"],
        {},
        "--rdzv-conf join_timeout expects seconds from 1 to 1000000000, got '0'",
    ),
    Row(
        ["--rdzv-conf=last_call_timeout=-1", "ok.py"],
        {},
        "--rdzv-conf last_call_timeout expects seconds from 0 to 1000000000, got '-1'",
    ),
    Row(
        ["--rdzv-conf=keep_alive_interval=0.1", "ok.py"],
        {},
        "--rdzv-conf keep_alive_interval (interval times attempts) expects seconds from 1 to 86400, got '0.3'",
    ),
    Row(
        ["--rdzv-conf=keep_alive_max_attempt=0", "ok.py"],
        {},
        "--rdzv-conf keep_alive_max_attempt expects a whole number above 0, got '0'",
    ),
    Row(["--rdzv-conf=tls_cert=a.pem", "ok.py"], {}, "--rdzv-conf tls_cert expects tls_key and tls_ca beside it"),
    Row(
        ["--rdzv-backend=etcd", "--rdzv-endpoint=db", "--rdzv-conf=protocol=ftp", "ok.py"],
        {},
        "--rdzv-conf protocol expects http or https, got 'ftp'",
    ),
    Row(
        ["--rdzv-backend=etcd", "--rdzv-endpoint=db", "--rdzv-conf=protocol=http,cacert=ca.pem", "ok.py"],
        {},
        "--rdzv-conf cacert expects protocol=https beside it, got protocol=http",
    ),
    Row(
        ["--rdzv-backend=etcd", "--rdzv-endpoint=db", "--rdzv-conf=cert=c.pem", "ok.py"],
        {},
        "--rdzv-conf cert expects key beside it",
    ),
    Row(
        ["--rdzv-backend=etcd", "--rdzv-endpoint=db", "--rdzv-conf=cacert=missing.pem", "ok.py"],
        {},
        "--rdzv-conf cacert expects a file that can be read, got 'missing.pem'",
    ),
    Row(
        ["--rdzv-backend=etcd", "--rdzv-endpoint=db", "--rdzv-conf=username=me", "ok.py"],
        {},
        "--rdzv-conf username expects the password in PLANARIA_ETCD_PASSWORD, got none",
    ),
    Row(
        ["--rdzv-backend=etcd", "--rdzv-endpoint=db", "ok.py"],
        {"PLANARIA_ETCD_PASSWORD": "x"},
        "PLANARIA_ETCD_PASSWORD expects username beside it",
    ),
    Row(
        ["--master-port=0", "ok.py"],
        {},
        "--master-port expects a port from 1 to 65535 (leave it out for a free one), got '0'",
    ),
    Row(
        ["--master-port=65536", "ok.py"],
        {},
        "--master-port expects a port from 1 to 65535 (leave it out for a free one), got '65536'",
    ),
    Row(["--master-port=http", "ok.py"], {}, "--master-port expects a whole number, got 'http'"),
    Row(
        ["--master-addr=my host", "--master-port=1234", "ok.py"],
        {},
        "--master-addr expects a host name or an IP address, got 'my host'",
    ),
    Row(["--local-addr=my host", "ok.py"], {}, "--local-addr expects a host name or an IP address, got 'my host'"),
    Row(
        ["--nnodes=2", "--resize-grace=-1", "ok.py"],
        {},
        "--resize-grace expects seconds from 0 to 1000000000, got '-1'",
    ),
    Row(["--resize-grace=long", "ok.py"], {}, "--resize-grace expects a number, got 'long'"),
    Row(
        ["--on-lost-majority=panic", "ok.py"],
        {},
        "--on-lost-majority expects one of wait, exit, continue, got 'panic'",
    ),
    "The token of several nodes",
    Row(
        ["--nnodes=2", "--require-token", "ok.py"],
        {},
        "--require-token expects a secret in PLANARIA_TOKEN or PLANARIA_TOKEN_FILE, or tls_cert, tls_key and tls_ca in --rdzv-conf, got neither",
    ),
    Row(["--nnodes=2", "ok.py"], {"PLANARIA_TOKEN": ""}, "PLANARIA_TOKEN expects a secret, got an empty one"),
    Row(
        ["--nnodes=2", "ok.py"],
        {"PLANARIA_TOKEN": "x", "PLANARIA_TOKEN_FILE": "token"},
        "PLANARIA_TOKEN and PLANARIA_TOKEN_FILE exclude each other: set one of them",
    ),
    Row(
        ["--nnodes=2", "ok.py"],
        {"PLANARIA_TOKEN_FILE": "missing"},
        "PLANARIA_TOKEN_FILE expects a file that can be read, got 'missing': No such file or directory",
    ),
    Row(
        ["--nnodes=2", "ok.py"],
        {"PLANARIA_TOKEN_FILE": "empty_dir"},
        "PLANARIA_TOKEN_FILE expects a file, got 'empty_dir', which is something else",
    ),
    Row(
        ["--nnodes=2", "ok.py"],
        {"PLANARIA_TOKEN_FILE": "open_token"},
        "PLANARIA_TOKEN_FILE expects a file that not everybody can read, got 'open_token' (chmod 600)",
    ),
    Row(
        ["--nnodes=2", "ok.py"],
        {"PLANARIA_TOKEN_FILE": "empty_token"},
        "PLANARIA_TOKEN_FILE expects a secret, got an empty one",
    ),
    "Output",
    Row(["-r", "4", "ok.py"], {}, "--redirects expects a mask from 0 to 3, or RANK:MASK,..., got '4'"),
    Row(["-t", "both", "ok.py"], {}, "--tee expects a mask from 0 to 3, or RANK:MASK,..., got 'both'"),
    Row(["--redirects=0:1,1", "ok.py"], {}, "--redirects expects a mask from 0 to 3, or RANK:MASK,..., got '0:1,1'"),
    Row(["--tee=0:1,x:2", "ok.py"], {}, "--tee expects a mask from 0 to 3, or RANK:MASK,..., got '0:1,x:2'"),
    Row(["ok.py"], {"PET_TEE": "9"}, "PET_TEE expects a mask from 0 to 3, or RANK:MASK,..., got '9'"),
    Row(
        ["--local-ranks-filter=0,one", "ok.py"],
        {},
        "--local-ranks-filter expects local ranks with commas between them, such as 0,1,2, got '0,one'",
    ),
    Row(
        ["--local-ranks-filter=0,", "ok.py"],
        {},
        "--local-ranks-filter expects local ranks with commas between them, such as 0,1,2, got '0,'",
    ),
    Row(
        ["--log-dir=data.txt", "ok.py"],
        {},
        "--log-dir expects a directory, got 'data.txt': '/home/you/data.txt' is not one",
    ),
    Row(
        ["--log-dir=data.txt/logs", "ok.py"],
        {},
        "--log-dir expects a directory, got 'data.txt/logs': '/home/you/data.txt' is not one",
    ),
    Row(
        ["ok.py"],
        {"PET_LOG_DIR": "data.txt"},
        "PET_LOG_DIR expects a directory, got 'data.txt': '/home/you/data.txt' is not one",
    ),
    Row(
        ["--logs-specs=mine", "ok.py"],
        {},
        "--logs-specs expects the name of an entry point in the group torchrun.logs_specs, got 'mine'",
    ),
    Row(
        ["--event-log-handler=mine", "ok.py"],
        {},
        "--event-log-handler expects null, console, logging, jsonl:PATH, prometheus[:PATH] or an installed plugin (planaria.event_handlers), got 'mine'",
    ),
    Row(
        ["--event-log-handler=", "ok.py"],
        {},
        "--event-log-handler expects null, console, logging, jsonl:PATH, prometheus[:PATH] or an installed plugin (planaria.event_handlers), got ''",
    ),
    Row(
        ["--event-log-handler=jsonl", "ok.py"],
        {},
        "--event-log-handler expects null, console, logging, jsonl:PATH, prometheus[:PATH] or an installed plugin (planaria.event_handlers), got 'jsonl'",
    ),
    Row(
        ["--event-log-handler=jsonl:", "ok.py"],
        {},
        "--event-log-handler expects null, console, logging, jsonl:PATH, prometheus[:PATH] or an installed plugin (planaria.event_handlers), got 'jsonl:'",
    ),
    Row(
        ["--event-log-handler=console:x", "ok.py"],
        {},
        "--event-log-handler expects null, console, logging, jsonl:PATH, prometheus[:PATH] or an installed plugin (planaria.event_handlers), got 'console:x'",
    ),
    Row(
        ["--event-log-handler=console,mine:x", "ok.py"],
        {},
        "--event-log-handler expects null, console, logging, jsonl:PATH, prometheus[:PATH] or an installed plugin (planaria.event_handlers), got 'mine:x'",
    ),
    Row(
        ["--event-log-handler=jsonl:nowhere/e.jsonl", "ok.py"],
        {},
        "--event-log-handler expects a path in an existing directory, got 'nowhere/e.jsonl'",
    ),
    Row(
        ["--event-log-handler=console,prometheus:empty_dir", "ok.py"],
        {},
        "--event-log-handler expects the path of a file, got 'empty_dir'",
    ),
    Row(
        ["ok.py"],
        {"PET_EVENT_LOG_HANDLER": "mine"},
        "PET_EVENT_LOG_HANDLER expects null, console, logging, jsonl:PATH, prometheus[:PATH] or an installed plugin (planaria.event_handlers), got 'mine'",
    ),
    Row(
        ["--report-file=nowhere/report.json", "ok.py"],
        {},
        "--report-file expects a path in an existing directory, got 'nowhere/report.json'",
    ),
    Row(["--report-file=empty_dir", "ok.py"], {}, "--report-file expects the path of a file, got 'empty_dir'"),
    Row(["--report-file=", "ok.py"], {}, "--report-file expects the path of a file, got ''"),
    Row(
        ["ok.py"],
        {"PET_REPORT_FILE": "nowhere/r.json"},
        "PET_REPORT_FILE expects a path in an existing directory, got 'nowhere/r.json'",
    ),
    "Stopping",
    Row(
        ["--signals-to-handle=SIGTERM,SIGFOO", "ok.py"],
        {},
        "--signals-to-handle expects signal names such as SIGTERM,SIGUSR1, got 'SIGFOO'",
    ),
    Row(
        ["--signals-to-handle=SIGKILL", "ok.py"],
        {},
        "--signals-to-handle expects signals that can be handled, got SIGKILL, which cannot",
    ),
    Row(
        ["--signals-to-handle=SIGSTOP,SIGTERM", "ok.py"],
        {},
        "--signals-to-handle expects signals that can be handled, got SIGSTOP, which cannot",
    ),
    Row(
        ["--signals-to-handle=SIGCHLD", "ok.py"],
        {},
        "--signals-to-handle expects signals that stop the job, got SIGCHLD, which every ending worker sends",
    ),
    Row(
        ["--signals-to-handle=15", "ok.py"],
        {},
        "--signals-to-handle expects signal names such as SIGTERM,SIGUSR1, got '15'",
    ),
    Row(
        ["--signals-to-handle=sigterm", "ok.py"],
        {},
        "--signals-to-handle expects signal names such as SIGTERM,SIGUSR1, got 'sigterm'",
    ),
    Row(
        ["--signals-to-handle=", "ok.py"],
        {},
        "--signals-to-handle expects signal names such as SIGTERM,SIGUSR1, got ''",
    ),
    Row(["--shutdown-timeout=-1", "ok.py"], {}, "--shutdown-timeout expects whole seconds, 0 or more, got '-1'"),
    Row(["--shutdown-timeout=1.5", "ok.py"], {}, "--shutdown-timeout expects a whole number, got '1.5'"),
    Row(
        ["ok.py"],
        {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "soon"},
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT expects whole seconds, 0 or more, got 'soon'",
    ),
    Row(
        ["ok.py"],
        {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "-3"},
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT expects whole seconds, 0 or more, got '-3'",
    ),
    Row(["--exit-code=launcher", "ok.py"], {}, "--exit-code expects one of agent, worker, got 'launcher'"),
    Row(["ok.py"], {"PET_EXIT_CODE": "both"}, "PET_EXIT_CODE expects one of agent, worker, got 'both'"),
    Row(["ok.py"], {"PET_NO_BOOTSTRAP": "off"}, "PET_NO_BOOTSTRAP expects 0 or 1, got 'off'"),
    "The health check",
    Row(["--health-check-port=http", "ok.py"], {}, "--health-check-port expects a whole number, got 'http'"),
    Row(
        ["--health-check-port=65536", "ok.py"],
        {},
        "--health-check-port expects a port from 0 to 65535, where 0 is a free one, got '65536'",
    ),
    Row(
        ["--health-check-port=-1", "ok.py"],
        {},
        "--health-check-port expects a port from 0 to 65535, where 0 is a free one, got '-1'",
    ),
    Row(
        ["ok.py"],
        {"TORCHELASTIC_HEALTH_CHECK_PORT": "eighty"},
        "TORCHELASTIC_HEALTH_CHECK_PORT expects a port from 0 to 65535, where 0 is a free one, got 'eighty'",
    ),
    Row(
        ["ok.py"],
        {"PET_HEALTH_CHECK_PORT": "99999"},
        "PET_HEALTH_CHECK_PORT expects a port from 0 to 65535, where 0 is a free one, got '99999'",
    ),
    Row(
        ["--health-check-port=80", "--health-check-host=my host", "ok.py"],
        {},
        "--health-check-host expects a host name or an IP address, got 'my host'",
    ),
    Row(
        ["--health-check-port=80", "--health-check-timeout=0", "ok.py"],
        {},
        "--health-check-timeout expects seconds from 0.1 to 1000000000, got '0'",
    ),
    Row(
        ["--health-check-port=80", "ok.py"],
        {"PLANARIA_TOKEN": ""},
        "PLANARIA_TOKEN expects a secret, got an empty one",
    ),
    "planaria drain and planaria stop",
    Row(["--force"], {}, "planaria drain has no flag '--force' (--help lists them all)", "drain"),
    Row(["--drain"], {}, "planaria drain has no flag '--drain' (--help lists them all)", "drain"),
    Row(["job7"], {}, "planaria stop has no flag 'job7' (--help lists them all)", "stop"),
    Row(["--json=1"], {}, "--json takes no value, got '1'", "drain"),
    Row(["--run-id"], {}, "--run-id expects a value, got nothing", "drain"),
    Row(["--port=0"], {}, "--port expects a port from 1 to 65535, got '0'", "drain"),
    Row(["--port=http"], {}, "--port expects a port from 1 to 65535, got 'http'", "stop"),
    Row(["--pid=me"], {}, "--pid expects the pid of a launcher, got 'me'", "drain"),
    Row(["--host=node-a"], {}, "--host expects a --port beside it, got none", "drain"),
    Row(["--port=80", "--host=my host"], {}, "--host expects a host name or an IP address, got 'my host'", "drain"),
    Row(["--timeout=soon"], {}, "--timeout expects a number of seconds, got 'soon'", "drain"),
    Row(["--timeout=-1"], {}, "--timeout expects seconds from 0 to 1000000000, got '-1'", "stop"),
    Row(["--grace=5"], {}, "--grace has a meaning with --drain only", "stop"),
    Row(["--drain", "--grace=nan"], {}, "--grace expects seconds from 0 to 1000000000, got 'nan'", "stop"),
    Row(
        [],
        {"TORCHELASTIC_HEALTH_CHECK_PORT": "eighty"},
        "TORCHELASTIC_HEALTH_CHECK_PORT expects a port from 0 to 65535, got 'eighty'",
        "drain",
    ),
)

ROWS = tuple(row for row in TABLE if isinstance(row, Row))


def prepare(folder: Path) -> None:
    """Make the files that the table speaks of; `folder` must be the current directory of `told`."""
    (folder / "ok.py").write_text("print('hello')\n")
    (folder / "broken.py").write_text("import os\nprint('hello'\n")
    (folder / "nulls.py").write_bytes(b"x = 1\0\n")
    (folder / "data.txt").write_text("data\n")
    for name, content, mode in (("open_token", "secret\n", 0o644), ("empty_token", "\n", 0o600)):
        (folder / name).write_text(content)
        (folder / name).chmod(mode)
    (folder / "empty_dir").mkdir()
    (folder / "pkg").mkdir()
    (folder / "pkg" / "__main__.py").write_text("")


def told(argv: Sequence[str], environ: Mapping[str, str], folder: Path, command: str = "run") -> str | None:
    """Return what a machine with four CPUs and no GPU says about a command line, or None when it would run."""
    try:
        if command != "run":
            read_flags(command, argv, environ)
            return None
        options = parse(argv, environ)
        facts = check(options, True, {"PATH": "/usr/bin:/bin", **environ})
        wanted = needs(options, environ)
        topology = numa.Topology((), {0: frozenset(range(4))}) if "topology" in wanted else None
        found = credentials.read(environ) if "credentials" in wanted else None
        machine = Machine(sys.executable, 4, "fresh-id", facts, Counts(0, 0, 0), topology, found, frozenset())
        planned = plan(options, environ, machine)
        if options.logs_specs is not None:
            planned = with_specs(planned, options.logs_specs)
        meeting = planned.job.meeting
        if meeting is not None:
            credentials.check_files(meeting)
    except UsageError as error:
        return str(error).replace(str(folder), HOME)
    return None


def render() -> str:
    """Return the table as Markdown."""
    lines = [
        "# What planaria says about a wrong command line",
        "",
        "Every line ends the launcher with status 2 before anything is started. This page is made from the table in",
        "`tests/unit/launch/bad_input.py`, which is also a test: run that file to make the page again. The examples stand",
        f"in `{HOME}`, on a machine without GPUs; `ok.py` is a script, `pkg` a package, `data.txt` a file.",
        "`open_token` can be read by everybody, `empty_token` holds a newline.",
    ]
    for row in TABLE:
        if isinstance(row, str):
            lines += ["", f"## {row}", "", "| command line | message |", "|---|---|"]
        else:
            variables = [f"{name}={shlex.quote(value)}" for name, value in row.environ.items()]
            command = " ".join([*variables, f"planaria {row.command}", *(shlex.quote(word) for word in row.argv)])
            lines.append(f"| {_code(command)} | {_escaped(row.sentence)} |")
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    return f"`{shown.replace('|', chr(92) + '|')}`"


def _escaped(text: str) -> str:
    for letter in "\\|*_<>[]":
        text = text.replace(letter, "\\" + letter)
    return text


if __name__ == "__main__":
    print(render(), end="")
