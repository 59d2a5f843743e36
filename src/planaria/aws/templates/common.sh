#!/bin/bash
# A host of a Planaria job: @kind@. Written by petctl. What each part does, and how to look into it: docs/aws-hosts.md.
#
# cloud-init runs this once, as user data. It puts itself where cloud-init finds it at every boot, and starts itself in
# the background: a boot is over when the host is up, not when the job is. Nothing in here is secret.
set -euo pipefail

# Values stand in a quoted here-document, so no shell expands what somebody typed.
declare -A is=()
while IFS= read -r line; do is[${line%%=*}]=${line#*=}; done <<'PLANARIA_SETTINGS'
@settings@
PLANARIA_SETTINGS

per_boot=/var/lib/cloud/scripts/per-boot/planaria
if [ "${1:-}" != run ]; then
  [ "$0" -ef "$per_boot" ] || install -D -m 0755 "$0" "$per_boot"
  setsid nohup "$per_boot" run >>/var/log/planaria.log 2>&1 </dev/null &
  exit 0
fi

readonly home=/run/planaria # in memory: what is in it goes with the boot
readonly metadata=http://169.254.169.254/latest
export PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export AWS_DEFAULT_REGION=${is[region]} AWS_PAGER='' AWS_RETRY_MODE=standard AWS_MAX_ATTEMPTS=5
if [ -n "${is[endpoint]}" ]; then export AWS_ENDPOINT_URL=${is[endpoint]}; fi
instance='' address='' hooked=no hooks=0 hook_at=0 patience=20

say() { # one line for the log; the console too, where EC2 shows it without a login
  printf '%s planaria: %s\n' "$(date -u +%FT%TZ)" "$*"
  { printf 'planaria: %s\n' "$*" >/dev/console; } 2>/dev/null || true
}

imds() { # print a value of the metadata service; status 22: it has none
  local token
  token=$(curl -fsS -m 2 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$metadata/api/token") || return 1
  curl -fsS -m 2 -H "X-aws-ec2-metadata-token: $token" "$metadata/meta-data/$1" 2>/dev/null
}

know_self() {
  instance=$(imds instance-id) && address=$(imds local-ipv4)
}

call() { # the aws program, which may hang: nobody waits for it longer than $patience
  timeout -k 2 "$patience" aws "$@"
}

need() { # have a program, from a package where it is missing
  command -v "$1" >/dev/null && return
  say "installing $2, for $1"
  if command -v dnf >/dev/null; then dnf install -y -q "$2"
  elif command -v yum >/dev/null; then yum install -y -q "$2"
  else apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${2/#docker/docker.io}"; fi
}

persist() { # try a step until it works, 5 times with 2, 4, 8 and 16 s between
  local pause=2
  until "$@"; do
    if [ "$pause" -gt 16 ]; then say "gave up: $1"; return 1; fi
    say "$1 did not work; once more in $pause s"
    sleep "$pause"
    pause=$((pause * 2))
  done
}

complete_hook() { # tell the group that this host is done with a step of its life
  call autoscaling complete-lifecycle-action --auto-scaling-group-name "$1" --lifecycle-hook-name "$2" \
    --instance-id "$instance" --lifecycle-action-result "$3"
}

ready() { # tell a group that this host works, for 20 minutes at most: after a reboot the group does not ask
  if [ "$hooked" = yes ] || [ "$hooks" -ge 8 ] || [ "$SECONDS" -lt "$hook_at" ]; then return; fi
  hook_at=$((SECONDS + 5 * 2 ** hooks)) hooks=$((hooks + 1))
  if complete_hook "$1" @ready_hook@ CONTINUE; then hooked=yes; fi
}

is_going() { # the group takes this host
  [ "$(imds autoscaling/target-lifecycle-state)" = Terminated ]
}

gone() { # an end that nobody foresaw leaves a line
  if [ "$1" != 0 ]; then say "stopped with status $1: nobody looks after this host now"; fi
}

mkdir -p "$home"
exec 9>"$home/lock"
flock -w 30 9 || { say "another one is at work on this host"; exit 0; }
trap 'gone "$?"' EXIT
