{{/* What the schema cannot say: pairs of values that do not fit. Each sentence says what to do. */}}
{{- define "seedbed.validate" -}}
{{- range $section := list "experiment" "image" "learner" "actor" "replay" "cost" "metrics" "networkPolicy" "auth" "tls" -}}
  {{- if not (kindIs "map" (get $.Values $section)) -}}
    {{- fail (printf "%s is not there: leave it out for the defaults, or give its keys" $section) -}}
  {{- end -}}
{{- end -}}
{{- $experiment := include "seedbed.experimentValues" . | fromJson -}}
{{- if contains "." .Release.Name -}}
  {{- fail (printf "the release's name %q has a dot, which names of Services must not have" .Release.Name) -}}
{{- end -}}
{{- range $where, $labels := dict "extraLabels" .Values.extraLabels "learner.podLabels" .Values.learner.podLabels "actor.podLabels" .Values.actor.podLabels "replay.podLabels" .Values.replay.podLabels -}}
  {{- range $key := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" -}}
    {{- if hasKey $labels $key -}}
      {{- fail (printf "%s sets %s, by which the chart selects its own pods: choose another label" $where $key) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if gt (len .Release.Name) 40 -}}
  {{- fail (printf "the release's name %q has %d letters; the names of its pods leave room for 40" .Release.Name (len .Release.Name)) -}}
{{- end -}}
{{- $learner := .Values.learner -}}
{{- $accelerator := $learner.accelerator -}}
{{- if and (eq $accelerator.type "tpu") (not (and $accelerator.name $accelerator.topology)) -}}
  {{- fail (printf "learner.accelerator: a tpu needs name (such as tpu-v6e-slice) and topology (such as 1x1); given name %q, topology %q" $accelerator.name $accelerator.topology) -}}
{{- end -}}
{{- if and (eq $accelerator.type "tpu") (hasKey $learner.nodeSelector "cloud.google.com/gke-accelerator") -}}
  {{- fail (printf "learner.nodeSelector asks for the GPU %q and learner.accelerator.type is tpu: no node has both; remove one" (get $learner.nodeSelector "cloud.google.com/gke-accelerator")) -}}
{{- end -}}
{{- if and (eq $accelerator.type "tpu") (not (hasPrefix "tpu" $accelerator.name)) -}}
  {{- fail (printf "learner.accelerator.name %q is no TPU: tpu-v6e-slice, tpu-v5-lite-podslice, tpu-v5p-slice, tpu-v4-podslice or tpu7x" $accelerator.name) -}}
{{- end -}}
{{- if and (eq $accelerator.type "gpu") (or $accelerator.topology (hasPrefix "tpu" $accelerator.name)) -}}
  {{- fail (printf "learner.accelerator.type is gpu, but name %q and topology %q are a TPU's: say type: tpu" $accelerator.name $accelerator.topology) -}}
{{- end -}}
{{- if and (eq $accelerator.type "none") (or $accelerator.name $accelerator.topology) -}}
  {{- fail (printf "learner.accelerator.type is none, but name %q, topology %q ask for one: say type: gpu or tpu" $accelerator.name $accelerator.topology) -}}
{{- end -}}
{{- $gpuSelector := get $learner.nodeSelector "cloud.google.com/gke-accelerator" -}}
{{- if and $gpuSelector (eq $accelerator.type "none") -}}
  {{- fail (printf "learner.nodeSelector asks for nodes with the GPU %q and learner.accelerator.type is none: it would stand idle; say type: gpu, name: %s" $gpuSelector $gpuSelector) -}}
{{- end -}}
{{- if eq $accelerator.type "gpu" -}}
  {{- range $key, $value := $learner.nodeSelector -}}
    {{- if hasPrefix "cloud.google.com/gke-tpu" $key -}}
      {{- fail (printf "learner.nodeSelector asks for a TPU (%s: %s) and learner.accelerator.type is gpu: no node has both; remove one" $key $value) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if eq $accelerator.type "tpu" -}}
  {{- $chips := 1 -}}
  {{- range splitList "x" $accelerator.topology }}{{ $chips = mul $chips (int .) }}{{ end -}}
  {{- if ne (int $chips) (int $accelerator.count) -}}
    {{- fail (printf "learner.accelerator.topology %s has %d chips and count is %v: a host's pod must ask for all of them, or it is never scheduled" $accelerator.topology $chips $accelerator.count) -}}
  {{- end -}}
{{- end -}}
{{- $live := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "seedbed.learner" .) -}}
{{- if $live -}}
  {{- $size := "" -}}
  {{- range $live.spec.volumeClaimTemplates }}{{ $size = .spec.resources.requests.storage }}{{ end -}}
  {{- $wanted := eq $learner.storage.kind "pvc" | ternary (toString $learner.storage.size) "" -}}
  {{- if ne $size $wanted -}}
    {{- fail (printf "learner.storage cannot change in a release: it has a volume of %q, and %q is wanted. A larger one: kubectl edit pvc runs-%s-0%s (leave learner.storage.size as it is)" $size $wanted (include "seedbed.learner" .) (include "seedbed.several" . | empty | not | ternary ", and those of the other learners" "")) -}}
  {{- end -}}
{{- end -}}
{{- $backend := dig "learner" "backend" "tensorflow" $experiment -}}
{{- if and (eq $accelerator.type "tpu") (ne $backend "jax") -}}
  {{- fail (printf "learner.accelerator.type is tpu and experiment.learner.backend is %s: TPUs are reached through JAX; say experiment.learner.backend: jax, and take the learner's image for it" $backend) -}}
{{- end -}}
{{- if and (eq $learner.storage.kind "gcsfuse") (not $learner.storage.bucket) -}}
  {{- fail "learner.storage.kind is gcsfuse: learner.storage.bucket must name the bucket" -}}
{{- end -}}
{{- if and (ne $learner.storage.kind "gcsfuse") $learner.storage.bucket -}}
  {{- fail (printf "learner.storage.bucket %q is read with learner.storage.kind: gcsfuse only, given %s" $learner.storage.bucket $learner.storage.kind) -}}
{{- end -}}
{{- $replicas := int $learner.replicas -}}
{{- $gossip := get $experiment "gossip" | default dict -}}
{{- if and (hasKey $gossip "replicas") (ne (int $gossip.replicas) $replicas) -}}
  {{- fail (printf "learner.replicas is %d, and experiment.gossip.replicas is %v: the chart sets the count; leave it out, and say learner.replicas: %v for so many" $replicas $gossip.replicas $gossip.replicas) -}}
{{- end -}}
{{- if and (hasKey $gossip "topology") (ne $gossip.topology $learner.topology) -}}
  {{- fail (printf "learner.topology is %s, and experiment.gossip.topology is %s: the chart sets it; leave it out, and say learner.topology: %s" $learner.topology $gossip.topology $gossip.topology) -}}
{{- end -}}
{{- if get $gossip "addresses" -}}
  {{- fail (printf "experiment.gossip.addresses names %d addresses, and learner.replicas is %d: the chart sets them; leave them out" (len $gossip.addresses) $replicas) -}}
{{- end -}}
{{- $shards := int .Values.replay.shards -}}
{{- if and $shards (gt $replicas 1) -}}
  {{- fail (printf "replay.shards is %d, and learner.replicas is %d: a shard keeps the experience of one learner; say replay.shards: 0 for a replay in each learner, or learner.replicas: 1" $shards $replicas) -}}
{{- end -}}
{{- $given := dig "learner" "replay" dict $experiment -}}
{{- if $shards -}}
  {{- $agent := get $experiment "agent" | default "vtrace" -}}
  {{- if has $agent (list "vtrace" "a2c") -}}
    {{- fail (printf "replay.shards is %d and experiment.agent is %s, which trains without a replay: say replay.shards: 0, or experiment.agent: r2d2 or dqn" $shards $agent) -}}
  {{- end -}}
  {{- $storage := get $given "storage" | default "remote" -}}
  {{- if ne $storage "remote" -}}
    {{- fail (printf "replay.shards is %d and experiment.learner.replay.storage is %s: the shards would be idle; leave storage out, or say replay.shards: 0" $shards $storage) -}}
  {{- end -}}
  {{- if get $given "shards" -}}
    {{- fail (printf "replay.shards is %d, and experiment.learner.replay.shards names %s: the chart sets those addresses; leave them out, or say replay.shards: 0" $shards (get $given "shards" | join ", ")) -}}
  {{- end -}}
  {{- $minimum := int (get $given "min_size" | default 5000) -}}
  {{- $sequences := int (mul $shards .Values.replay.sequences) -}}
  {{- if gt $minimum $sequences -}}
    {{- fail (printf "experiment.learner.replay.min_size is %d, and %d shards of replay.sequences %d hold %d: training would never begin" $minimum $shards (int .Values.replay.sequences) $sequences) -}}
  {{- end -}}
{{- else if and (eq (get $given "storage" | default "host") "remote") (not (get $given "shards")) -}}
  {{- fail "experiment.learner.replay.storage is remote and replay.shards is 0: say how many shards there are to be (replay.shards: 2), or name others' in experiment.learner.replay.shards" -}}
{{- end -}}
{{- $live := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "seedbed.replay" .) -}}
{{- if and $live $shards -}}
  {{- $size := (index $live.spec.volumeClaimTemplates 0).spec.resources.requests.storage -}}
  {{- $sequences := "" -}}
  {{- range (index $live.spec.template.spec.containers 0).args -}}
    {{- if hasPrefix "--sequences=" . }}{{ $sequences = trimPrefix "--sequences=" . }}{{ end -}}
  {{- end -}}
  {{- if or (ne $size (toString .Values.replay.volume.size)) (ne $sequences (toString (int .Values.replay.sequences))) -}}
    {{- fail (printf "replay.volume.size and replay.sequences cannot change in a release: its shards have volumes of %s for %s sequences, and %v for %d are wanted. To begin with empty ones: helm upgrade with replay.shards: 0, kubectl delete pvc -l app.kubernetes.io/instance=%s,app.kubernetes.io/component=replay, and upgrade again" $size $sequences .Values.replay.volume.size (int .Values.replay.sequences) .Release.Name) -}}
  {{- end -}}
{{- end -}}
{{- $dollars := dig "stop" "dollars" 0 $experiment -}}
{{- if and $dollars (not .Values.cost.enabled) -}}
  {{- fail (printf "experiment.stop.dollars is %v, and cost.enabled is false: nobody would count what the pods cost; enable the cost meter" $dollars) -}}
{{- end -}}
{{- if and .Values.tls.enabled .Values.cost.enabled (not .Values.auth.enabled) -}}
  {{- fail "tls.enabled and cost.enabled need auth.enabled: certificates are for gRPC, and the cost meter reads the learner's /status with a token" -}}
{{- end -}}
{{- if and .Values.tls.enabled (not .Values.tls.certManager) (not (and .Values.tls.learnerSecret .Values.tls.actorSecret)) -}}
  {{- fail "tls.enabled without tls.certManager needs tls.learnerSecret and tls.actorSecret: secrets with tls.crt, tls.key and ca.crt" -}}
{{- end -}}
{{- if and .Values.tls.enabled (not .Values.tls.certManager) $shards (not .Values.tls.replaySecret) -}}
  {{- fail (printf "tls.enabled without tls.certManager and replay.shards: %d needs tls.replaySecret: a secret with tls.crt (for *.%s.%s.svc), tls.key and ca.crt" $shards (include "seedbed.replay" .) .Release.Namespace) -}}
{{- end -}}
{{- $scaling := .Values.actor.autoscaling -}}
{{- if and (eq $scaling.kind "hpa") (gt (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
  {{- fail (printf "actor.autoscaling.minReplicas %v is more than maxReplicas %v" $scaling.minReplicas $scaling.maxReplicas) -}}
{{- end -}}
{{- end -}}
