
readonly container=planaria
readonly inside=/run/planaria # where the container has the files of $home that it needs
crashes=0 drained=no refreshed=0 started=0 limit=8 seen='' lost=0 proven=no

# --- what the container needs -------------------------------------------------------------------------------------

have_engine() {
  need docker docker || return 1
  docker version >/dev/null 2>&1 && return
  systemctl start docker || service docker start || return 1
  docker version >/dev/null
}

have_image() {
  docker image inspect "${is[image]}" >/dev/null 2>&1 && return
  if [[ ${is[image]} =~ ^([0-9]{12}\.dkr\.ecr(-fips)?\.([a-z0-9-]+)\.amazonaws\.com(\.cn)?)/ ]]; then
    local registry=${BASH_REMATCH[1]} region=${BASH_REMATCH[3]}
    call ecr get-login-password --region "$region" | docker login --username AWS --password-stdin "$registry" || return 1
  fi
  docker pull -q "${is[image]}"
}

have_volume() {
  if [ -z "${is[efs_id]}" ] || mountpoint -q @efs_folder@; then return; fi
  need mount.efs amazon-efs-utils || return 1
  mkdir -p @efs_folder@
  mount -t efs -o tls "${is[efs_id]}:/" @efs_folder@
}

image_user() { # print the number of the image's user
  local user
  user=$(docker image inspect -f '{{.Config.User}}' "${is[image]}") || return 1
  user=${user%%:*}
  if [ -z "$user" ]; then echo 0
  elif [[ $user =~ ^[0-9]+$ ]]; then echo "$user"
  else docker run --rm --net=none --log-driver=none --entrypoint=id "${is[image]}" -u; fi
}

have_files() { # description and token, for the container's user alone
  local user
  user=$(image_user) || return 1
  call s3 cp --only-show-errors "s3://${is[bucket]}/${is[folder]}job.json" "$home/job.json" || return 1
  chmod 0644 "$home/job.json"
  rm -f "$home/token"
  (umask 077 && call ssm get-parameter --name "${is[token_parameter]}" --with-decryption --query Parameter.Value \
    --output text >"$home/token") || return 1
  chown "$user" "$home/token" || return 1
  if [ -z "${is[efs_id]}" ]; then return; fi
  # The volume's root is root's, as EFS makes it; these two are the job's.
  install -d -o "$user" -m 0700 "${is[commits]}" && install -d -o "$user" -m 0755 "@efs_folder@/jobs/${is[job]}"
}

boot() {
  have_engine && have_image && have_volume && have_files
}

# --- who is in the job --------------------------------------------------------------------------------------------

addresses() { # print group and private address of the job's hosts that run or are about to
  call ec2 describe-instances --output text \
    --filters "Name=tag:aws:autoscaling:groupName,Values=${is[worker_group]},${is[store_group]:-${is[worker_group]}}" \
    Name=instance-state-name,Values=pending,running \
    --query "Reservations[].Instances[].[Tags[?Key=='aws:autoscaling:groupName']|[0].Value,PrivateIpAddress]"
}

write_hosts() { # make the container's hosts file from what `addresses` printed
  local group found
  {
    cat /etc/hosts
    printf '\n%s %s\n' "$address" @nodes_name@
    while read -r group found; do
      case $found in '' | None) continue ;; esac
      case $group in
      "${is[worker_group]}") if [ "$found" != "$address" ]; then echo "$found @nodes_name@"; fi ;;
      "${is[store_group]}") echo "$found @store_name@" ;;
      esac
    done <<<"$1"
  } >"$home/hosts.new"
  if [ -f "$home/hosts.plain" ] && cmp -s "$home/hosts.new" "$home/hosts.plain"; then return; fi
  # The file is mounted, so it has to stay the same file. It is written in one piece, over blank lines up to a size
  # that it never falls below: who reads it meanwhile finds the old list or the new one.
  { cat "$home/hosts.new"; head -c 32768 /dev/zero | tr '\0' '\n'; } >"$home/hosts.padded"
  touch "$home/hosts"
  echo 'multi on' >"$home/host.conf" # else glibc takes the first line of a name for its only one
  dd if="$home/hosts.padded" of="$home/hosts" bs=32768 count=1 conv=notrunc status=none
  mv "$home/hosts.new" "$home/hosts.plain"
  say "in the job: $(grep -c ' @nodes_name@$' "$home/hosts.plain") workers' hosts"
}

answers() { # somebody listens on a port of a host with this name, other than this one
  local found name
  while read -r found name; do
    if [ "$name" != "$1" ] || [ "$found" = "$address" ]; then continue; fi
    # shellcheck disable=SC2016  # the inner shell expands it
    if timeout 2 bash -c ': <"/dev/tcp/$0/$1"' "$found" "$2" 2>/dev/null; then return 0; fi
  done <"$home/hosts.plain"
  return 1
}

refresh() { # every 30 s: a replacement knows the others, so they need not know it at once; sooner without a store
  if [ "$SECONDS" -lt "$((refreshed + 10))" ]; then return; fi
  if [ "$SECONDS" -lt "$((refreshed + 30))" ]; then
    if [ -z "${is[store_group]}" ] || answers @store_name@ @port@; then return; fi
  fi
  refreshed=$SECONDS
  local found
  if found=$(addresses); then write_hosts "$found"; fi
}

gather() { # wait until all hosts that the group wants are known: who starts with half a list may found a second world
  local wanted found until=$((SECONDS + 60))
  wanted=$(call autoscaling describe-auto-scaling-groups --auto-scaling-group-names "${is[worker_group]}" \
    --query 'AutoScalingGroups[0].DesiredCapacity' --output text) || return 1
  [[ $wanted =~ ^[0-9]+$ ]] || wanted=${is[size]}
  while true; do
    found=$(addresses) || return 1
    write_hosts "$found"
    if [ "$(grep -c ' @nodes_name@$' "$home/hosts.plain")" -ge "$wanted" ]; then
      if [ -z "${is[store_group]}" ] || grep -q ' @store_name@$' "$home/hosts.plain"; then return; fi
    fi
    if [ "$SECONDS" -ge "$until" ]; then say "not all of $wanted hosts are there yet; going on"; return; fi
    sleep 2
  done
}

# --- the container ------------------------------------------------------------------------------------------------

start() {
  local options=(
    --detach --init --net=host --name "$container" --stop-timeout "${is[grace_s]}"
    --shm-size "${is[shm_gb]:-$(awk '/MemTotal/ { printf "%d", $2 / 2097152 + 1 }' /proc/meminfo)}g"
    --log-driver awslogs --log-opt mode=non-blocking --log-opt max-buffer-size=8m
    --log-opt "awslogs-region=${is[region]}" --log-opt "awslogs-group=${is[log_group]}"
    --log-opt "awslogs-stream=${is[run]}/$instance"
    --volume "$home/hosts:/etc/hosts:ro" --volume "$home/host.conf:/etc/host.conf:ro"
    --volume "$home/job.json:$inside/job.json:ro" --volume "$home/token:$inside/token:ro"
    --env "PLANARIA_JOB=$inside/job.json" --env "PLANARIA_TOKEN_FILE=$inside/token"
    --env "AWS_DEFAULT_REGION=${is[region]}" --env "PET_LOCAL_ADDR=$address"
    --env "PET_SHUTDOWN_TIMEOUT=${is[shutdown_timeout_s]}"
    # A line says which rank of all hosts printed it; `petctl logs --rank` goes by that.
    --env "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=[\${role_name} \${rank}]:"
  )
  if [ -n "${is[endpoint]}" ]; then
    options+=(--log-opt "awslogs-endpoint=${is[endpoint]}" --env "AWS_ENDPOINT_URL=${is[endpoint]}")
  fi
  if [ -n "${is[efs_id]}" ]; then
    options+=(--volume @efs_folder@:@efs_folder@ --env "PET_SNAPSHOT_DIR=${is[commits]}" --env "PLANARIA_OUTPUT_DIR=@efs_folder@/jobs/${is[job]}")
  fi
  if [ "${is[gpus]}" = yes ]; then options+=(--gpus all --ulimit memlock=-1); fi
  limit=60 engine rm -f "$container" >/dev/null 2>&1 || true
  limit=300 engine run "${options[@]}" "${is[image]}" >/dev/null
}

engine() { # docker, which may hang: nobody waits for it longer than $limit
  timeout -k 1 "$limit" docker "$@"
}

look() { # at the container: $seen is the status that it ended with; or runs, slow, gone, lost
  local found
  seen=$(engine inspect -f '{{if .State.Running}}runs{{else}}{{.State.ExitCode}}{{end}}' "$container" 2>"$home/said") && return
  found=$? # docker prints an empty line then
  case $found in
  124 | 137) seen=slow ;; # the time was up. A container that docker is slow about still runs
  *) if grep -qiE 'no such (object|container)' "$home/said"; then seen=gone; else seen=lost; fi ;;
  esac
}

settle() { # nobody knows how it ended: 125, as docker has it
  if ! [[ $seen =~ ^[0-9]+$ ]]; then seen=125; fi
}

go_on() { # docker was away, and what it left alone is not started anew
  if [ "$lost" = 0 ]; then return 1; fi
  look
  case $seen in runs | slow) lost=0 ;; *) return 1 ;; esac # one that has just come back is slow
}

is_away() { # docker failed, with a status, for it is away: there is time to ask it again
  case $1 in 0 | 124 | 137) return 1 ;; esac
  look
  [ "$seen" = lost ] && [ "$SECONDS" -lt "$until" ] && sleep 2
}

drain() { # let the agent leave in good order, with its newest commit on disk; no part of it may hang, whatever docker does
  local found left limit=10 until=$((SECONDS + is[grace_s]))
  drained=yes
  until engine exec "$container" planaria drain --no-wait || engine kill -s TERM "$container" >/dev/null; do
    is_away "$?" || break
  done
  while true; do
    left=$((until - SECONDS))
    limit=$((left > 1 ? left : 1)) engine wait "$container" >/dev/null && found=0 || found=$?
    is_away "$found" || break
  done
  case $found in
  124 | 137) # the time was up
    say "the container did not end within ${is[grace_s]} s; it is killed"
    engine kill "$container" >/dev/null && engine wait "$container" >/dev/null || true ;;
  esac
  look
  settle
  say "drained, status $seen"
  if [ "$seen" = 0 ]; then end_job 0 'done'; fi # the job was faster than the notice
}

# --- the job's end ------------------------------------------------------------------------------------------------

is_over() { # somebody has recorded how the job ended
  call s3api head-object --bucket "${is[bucket]}" --key "${is[folder]}result.json" >/dev/null 2>&1
}

record() { # write the result, if nobody has; the first one counts
  local said
  printf '%s, "status": %d, "reason": "%s", "instance": "%s", "recorded_at": "%s"}\n' \
    "${is[result_head]}" "$1" "$2" "$instance" "$(date -u +%FT%TZ)" >"$home/result.json"
  said=$(call s3api put-object --bucket "${is[bucket]}" --key "${is[folder]}result.json" --body "$home/result.json" \
    --content-type application/json --if-none-match '*' 2>&1) && return
  case $said in
  *PreconditionFailed*) return 0 ;;
  *if-none-match*) # an aws of before 2024 does not know the condition: look first
    is_over || call s3 cp --only-show-errors "$home/result.json" "s3://${is[bucket]}/${is[folder]}result.json" ;;
  *) say "$said"; return 1 ;;
  esac
}

to_zero() {
  local group
  for group in "${is[worker_group]}" ${is[store_group]:+"${is[store_group]}"}; do
    call autoscaling update-auto-scaling-group --auto-scaling-group-name "$group" --min-size 0 --desired-capacity 0 || return 1
  done
}

end_job() { # with a status and a reason; the result first, so that nobody sees empty groups without one
  say "the job is over: $2, status $1"
  persist record "$1" "$2" || say "the result is not recorded"
  turn_off
}

turn_off() { # whoever recorded the result may have died before this, and a group that is not at zero replaces its hosts
  until persist to_zero; do sleep 30; done
  say "the groups are at zero"
  leave
}

leave() { # nothing more to do here but to let the group take this host
  if [ "$hooks" = 0 ]; then complete_hook "${is[worker_group]}" @ready_hook@ ABANDON || true; fi
  while true; do
    if is_going && complete_hook "${is[worker_group]}" @drain_hook@ CONTINUE; then
      say "the group may take this host"
      exit 0
    fi
    sleep 5
  done
}

others() { # print the other hosts of the job that are in service: their containers have run
  call autoscaling describe-auto-scaling-groups --auto-scaling-group-names "${is[worker_group]}" --output text \
    --query "AutoScalingGroups[0].Instances[?LifecycleState=='InService' && InstanceId!='$instance'].InstanceId"
}

is_alive_elsewhere() { # not to be seen from here where etcd holds the store: agents listen where they like then
  # A host that never came up has nothing to say about those that did.
  if [ "$hooks" = 0 ] && [[ $(others) == i-* ]]; then return; fi
  [ -f "$home/hosts.plain" ] && answers @nodes_name@ @nodes_port@
}

ask_to_go() { # have the group take this host; another one comes, but not for ever
  local count key=${is[folder]}gave-up/
  if [ "$proven" = no ]; then # what ran for an hour is not counted
    call s3api put-object --bucket "${is[bucket]}" --key "$key$instance" >/dev/null || return 1
    count=$(call s3api list-objects-v2 --no-paginate --bucket "${is[bucket]}" --prefix "$key" --query KeyCount --output text) || return 1
    if [ "$count" -gt @max_replaced@ ]; then
      say "$count hosts of this run gave up: the group gets smaller"
      call autoscaling terminate-instance-in-auto-scaling-group --instance-id "$instance" --should-decrement-desired-capacity >/dev/null
      return
    fi
  fi
  call autoscaling set-instance-health --instance-id "$instance" --health-status Unhealthy --no-should-respect-grace-period
}

give_up() { # on this host, and on the job unless others carry it
  if is_alive_elsewhere; then
    say "this host gives up ($2, status $1); the job goes on without it"
    if [ "$hooks" != 0 ]; then persist ask_to_go || say "this host stays until the job ends"; fi
    leave
  fi
  end_job "$1" "$2"
}

ended() { # the container has ended by itself, with a status
  case $1 in
  75 | 124) say "the container ended with status $1: once more" ;; # nobody failed: too few hosts were left, or came
  69 | 70 | 71 | 125 | 126 | 127) say "the container ended with status $1" ;;
  2) if is_alive_elsewhere; then say "the other hosts refuse this one"; else end_job 2 'wrong usage'; fi ;;
  0) end_job 0 'done' ;;
  *) if [ "$1" -lt 128 ]; then end_job "$1" 'worker failed'; fi ;; # a signal is a host's trouble, not the job's end
  esac
  if [ $((SECONDS - started)) -ge 3600 ]; then crashes=0 proven=yes; fi # what ran for an hour begins anew
  crashes=$((crashes + 1))
  if is_over; then say "the job is over"; turn_off; fi
  if [ "$crashes" -gt @max_restarts@ ]; then give_up "$1" 'the container ended too often'; fi
  local pause=$((crashes < 6 ? 2 ** crashes : 60))
  say "restart $crashes of @max_restarts@ in $pause s"
  for ((; pause > 0; pause -= 2)); do
    if notice; then drained=yes; leave; fi
    sleep 2
  done
}

notice() { # print and tell why this host has to go
  local why
  if why=$(imds spot/instance-action); then say "spot notice: $why"
  elif is_going; then say "the group takes this host"
  else return 1; fi
}

watch() { # look around every 5 s until the container has ended
  # What hangs must not keep a notice from being heard: each call has 8 s here, and there is a look for one after each.
  local told=no patience=8 limit=8 waiting pause
  while true; do
    look
    case $seen in
    runs) lost=0 ;;
    slow) ;;
    lost) # a daemon that is restarted, or no process to be had: some time has to pass before that means anything
      lost=$((lost + 1))
      if [ "$lost" -gt 12 ]; then say "docker does not answer: $(tail -n 1 "$home/said")"; break; fi ;;
    *) break ;;
    esac
    if notice; then drain; return; fi
    if [ "$told" = no ] && imds events/recommendations/rebalance >/dev/null; then
      told=yes # the group starts another host first, where it may, and then takes this one: that is the notice
      say "EC2 recommends to be gone before long"
    fi
    ready "${is[worker_group]}"
    if notice; then drain; return; fi
    refresh
    if notice; then drain; return; fi
    docker wait "$container" >/dev/null &
    waiting=$!
    sleep 5 &
    pause=$!
    wait -n "$waiting" "$pause" || wait "$pause" || true # a docker that fails at once is asked no sooner
    kill "$waiting" "$pause" 2>/dev/null || true
  done
  settle
}

{
  say "a worker's host of job ${is[job]}, run ${is[run]}, boots"
  persist know_self
  persist need aws awscli
  if is_over; then say "the job is over"; turn_off; fi
  persist boot || give_up 1 'a host could not be set up'
  persist gather || give_up 1 'the hosts of the job could not be listed'
  while true; do
    started=$SECONDS
    if go_on || start; then
      say "the container runs"
      watch
      if [ "$drained" = yes ]; then leave; fi
      ended "$seen"
    else
      ended 125
    fi
  done
} 9>&- # bash keeps the lock where no program inherits it: what outlives this script does not hold it
