"""Wrong command lines of `planaria run`, on several nodes."""

# ruff: noqa: E501  (a row is a command line and its sentence; both stay whole)
from __future__ import annotations

from wrong_row import Row

ETCD = ("--rdzv-backend=etcd", "--rdzv-endpoint=db")

TABLE: tuple[Row | str, ...] = (
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
        "--rdzv-backend expects one of static, c10d, embedded, etcd, etcd-v2, kubernetes or an installed plugin (planaria.stores or torchrun.handlers), got 'zeus'",
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
        ["--rdzv-backend=kubernetes", "ok.py"],
        {},
        "--rdzv-endpoint expects [NAMESPACE/]NAME of a Lease and a ConfigMap, in small letters, digits and -, got ''",
    ),
    Row(
        ["--rdzv-backend=kubernetes", "--rdzv-endpoint=Ours/job_run", "ok.py"],
        {},
        "--rdzv-endpoint expects [NAMESPACE/]NAME of a Lease and a ConfigMap, in small letters, digits and -, got 'Ours/job_run'",
    ),
    Row(
        ["--rdzv-backend=kubernetes", "--rdzv-endpoint=job-run", "--rdzv-conf=server=10.96.0.1", "ok.py"],
        {},
        "--rdzv-conf server expects https://HOST:PORT, got '10.96.0.1'",
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
    Row([*ETCD, "--rdzv-conf=protocol=ftp", "ok.py"], {}, "--rdzv-conf protocol expects http or https, got 'ftp'"),
    Row(
        [*ETCD, "--rdzv-conf=protocol=http,cacert=ca.pem", "ok.py"],
        {},
        "--rdzv-conf cacert expects protocol=https beside it, got protocol=http",
    ),
    Row([*ETCD, "--rdzv-conf=cert=c.pem", "ok.py"], {}, "--rdzv-conf cert expects key beside it"),
    Row(
        [*ETCD, "--rdzv-conf=cacert=missing.pem", "ok.py"],
        {},
        "--rdzv-conf cacert expects a file that can be read, got 'missing.pem'",
    ),
    Row(
        [*ETCD, "--rdzv-conf=username=me", "ok.py"],
        {},
        "--rdzv-conf username expects the password in PLANARIA_ETCD_PASSWORD, got none",
    ),
    Row([*ETCD, "ok.py"], {"PLANARIA_ETCD_PASSWORD": "x"}, "PLANARIA_ETCD_PASSWORD expects username beside it"),
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
)
