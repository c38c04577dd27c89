{{/* Replay shards, and what the experiment says of a replay. */}}
{{- define "seedbed.validateReplay" -}}
{{- $experiment := include "seedbed.experimentValues" . | fromJson -}}
{{- $replicas := int .Values.learner.replicas -}}
{{- $shards := int .Values.replay.shards -}}
{{- if and $shards (gt $replicas 1) -}}
  {{- fail (printf "replay.shards is %d, and learner.replicas is %d: a shard keeps the experience of one learner; say replay.shards: 0 for a replay in each learner, or learner.replicas: 1" $shards $replicas) -}}
{{- end -}}
{{- $given := dig "learner" "replay" dict $experiment -}}
{{- if $shards -}}
  {{- $agent := include "seedbed.agent" . | fromJson -}}
  {{- if and $agent (not $agent.replay) -}}
    {{- fail (printf "replay.shards is %d and experiment.agent is %s, which trains without a replay: say replay.shards: 0, or another agent" $shards (include "seedbed.setting" (dict "root" . "path" "agent"))) -}}
  {{- end -}}
  {{- $storage := get $given "storage" -}}
  {{- if and $storage (ne $storage "remote") -}}
    {{- fail (printf "replay.shards is %d and experiment.learner.replay.storage is %s: the shards would be idle; leave storage out, or say replay.shards: 0" $shards $storage) -}}
  {{- end -}}
  {{- if get $given "shards" -}}
    {{- fail (printf "replay.shards is %d, and experiment.learner.replay.shards names %s: the chart sets those addresses; leave them out, or say replay.shards: 0" $shards (get $given "shards" | join ", ")) -}}
  {{- end -}}
  {{- $minimum := include "seedbed.setting" (dict "root" . "path" "learner.replay.min_size") | int -}}
  {{- $sequences := int (mul $shards .Values.replay.sequences) -}}
  {{- if gt $minimum $sequences -}}
    {{- fail (printf "experiment.learner.replay.min_size is %d, and %d shards of replay.sequences %d hold %d: training would never begin" $minimum $shards (int .Values.replay.sequences) $sequences) -}}
  {{- end -}}
{{- else if and (eq (include "seedbed.setting" (dict "root" . "path" "learner.replay.storage")) "remote") (not (get $given "shards")) -}}
  {{- fail "experiment.learner.replay.storage is remote and replay.shards is 0: say how many shards there are to be (replay.shards: 2), or name others' in experiment.learner.replay.shards" -}}
{{- end -}}
{{- $live := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "seedbed.replay" .) -}}
{{- if and $live $shards -}}
  {{- $way := printf "To begin with empty ones: helm upgrade with replay.shards: 0, kubectl delete pvc -l app.kubernetes.io/instance=%s,app.kubernetes.io/component=replay, and upgrade again" (include "seedbed.fullname" .) -}}
  {{- include "seedbed.validateClaim" (dict "root" . "name" (include "seedbed.replay" .) "path" "replay.persistence" "wanted" .Values.replay.persistence "way" $way) -}}
  {{- $sequences := "" -}}
  {{- range (index $live.spec.template.spec.containers 0).args -}}
    {{- if hasPrefix "--sequences=" . }}{{ $sequences = trimPrefix "--sequences=" . }}{{ end -}}
  {{- end -}}
  {{- if ne $sequences (toString (int .Values.replay.sequences)) -}}
    {{- fail (printf "replay.sequences cannot change in a release: its shards have %s each, and %d are wanted. %s" $sequences (int .Values.replay.sequences) $way) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
