
# etcd, directly on this host. Its data may go with the host: agents that run go on without a store, and write what
# they know to the next one, which they find by name.
readonly folder=/opt/planaria-etcd

install_etcd() {
  if [ -x "$folder/etcd" ]; then return; fi
  rm -rf "$folder.new"
  mkdir -p "$folder.new" || return 1
  curl -fsSL --retry 3 -m 300 -o "$folder.new/archive" "${is[etcd_url]}" || return 1
  if ! printf '%s  %s\n' "${is[etcd_sha256]}" "$folder.new/archive" | sha256sum -c --status; then
    say "${is[etcd_url]} is not what was asked for: expected SHA-256 ${is[etcd_sha256]}"
    return 1
  fi
  tar -xzf "$folder.new/archive" -C "$folder.new" --strip-components=1 --no-same-owner || return 1
  rm -f "$folder.new/archive"
  mv -T "$folder.new" "$folder"
}

serve() { # be etcd; a member of one, for clients in this security group
  exec "$folder/etcd" --name=store --data-dir=/var/lib/planaria-etcd --log-level=warn \
    --listen-client-urls=http://0.0.0.0:@port@ --advertise-client-urls="http://$address:@port@" \
    --listen-peer-urls=http://127.0.0.1:2380 --initial-advertise-peer-urls=http://127.0.0.1:2380 \
    --initial-cluster=store=http://127.0.0.1:2380 --auto-compaction-retention=1h
}

end_others() { # an etcd that outlived the script before this one has the ports
  local other
  for other in /proc/[0-9]*; do
    while [ "$other/exe" -ef "$folder/etcd" ]; do
      kill "${other#/proc/}" || true
      sleep 1
    done
  done
}

is_serving() {
  curl -fsS -m 2 "http://$address:@port@/health" >/dev/null 2>&1
}

{
  say "the store's host of job ${is[job]}, run ${is[run]}, boots"
  persist know_self
  persist need aws awscli
  persist need tar tar
  if ! persist install_etcd; then
    complete_hook "${is[store_group]}" @ready_hook@ ABANDON || true # the group tries another host
    exit 1
  fi
  install -d -m 0700 /var/lib/planaria-etcd
  end_others

  while true; do
    serve &
    etcd=$!
    while [ "$hooked" = no ] && [ "$hooks" -lt 8 ] && kill -0 "$etcd" 2>/dev/null; do
      if is_serving; then
        if [ "$hooks" = 0 ]; then say "etcd serves at $address:@port@"; fi
        ready "${is[store_group]}"
      fi
      [ "$hooked" = yes ] || sleep 2
    done
    wait "$etcd" && status=0 || status=$?
    say "etcd ended with status $status; starting it again"
    sleep 2
  done
} 9>&- # bash keeps the lock where no program inherits it: what outlives this script does not hold it
