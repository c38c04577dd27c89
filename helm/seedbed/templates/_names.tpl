{{/* Names. All begin with the release's, so that two releases live in one namespace. */}}

{{- define "seedbed.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride }}
{{- else }}{{ .Release.Name }}
{{- end -}}
{{- end -}}

{{- define "seedbed.learner" -}}{{ include "seedbed.fullname" . }}-learner{{- end -}}
{{- define "seedbed.actor" -}}{{ include "seedbed.fullname" . }}-actor{{- end -}}
{{- define "seedbed.replay" -}}{{ include "seedbed.fullname" . }}-replay{{- end -}}
{{- define "seedbed.cost" -}}{{ include "seedbed.fullname" . }}-cost{{- end -}}

{{/* The learners' first hosts by their stable names, not a Service that balances; a JSON list of
addresses. Call with (dict "root" $ "port" PORT "hosts" HOSTS-OF-EACH). */}}
{{- define "seedbed.learnerAddresses" -}}
{{- $root := .root -}}
{{- $port := .port -}}
{{- $learner := include "seedbed.learner" $root -}}
{{- $addresses := list -}}
{{- $hosts := int .hosts -}}
{{- range $rank := until (int $root.Values.learner.replicas) -}}
  {{- range $host := until $hosts -}}
    {{- $name := include "seedbed.learnerHost" (dict "root" $root "rank" $rank "host" $host) -}}
    {{- $addresses = append $addresses (printf "%s.%s.%s.svc:%d" $name $learner $root.Release.Namespace $port) -}}
  {{- end -}}
{{- end -}}
{{ $addresses | toJson }}
{{- end -}}

{{/* Where actors connect to, and where the first host of a learner listens for those of others. */}}
{{- define "seedbed.actorsLearners" -}}
{{- include "seedbed.learnerAddresses" (dict "root" . "port" 8470 "hosts" (include "seedbed.hosts" .)) -}}
{{- end -}}
{{- define "seedbed.peers" -}}
{{- include "seedbed.learnerAddresses" (dict "root" . "port" 8490 "hosts" 1) -}}
{{- end -}}

{{/* Whether there are several learners: "true" or nothing. */}}
{{- define "seedbed.several" -}}
{{- if gt (int .Values.learner.replicas) 1 }}true{{ end -}}
{{- end -}}

{{/* Where the learner connects to: every shard by its pod's stable name. A JSON list. */}}
{{- define "seedbed.replayAddresses" -}}
{{- $replay := include "seedbed.replay" . -}}
{{- $addresses := list -}}
{{- range $shard := until (int .Values.replay.shards) -}}
  {{- $addresses = append $addresses (printf "%s-%d.%s.%s.svc:8480" $replay $shard $replay $.Release.Namespace) -}}
{{- end -}}
{{ $addresses | toJson }}
{{- end -}}

{{/* What selects the pods of a component. Call with (dict "root" $ "component" NAME). */}}
{{- define "seedbed.selectorLabels" -}}
app.kubernetes.io/name: seedbed
app.kubernetes.io/instance: {{ include "seedbed.fullname" .root | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of a pod: nothing that changes with the chart's version, or every bump restarts it. "more"
LABELS are others of its own; "pods" ROLE takes those of the role's pod block. */}}
{{- define "seedbed.podLabels" -}}
{{- $own := include "seedbed.selectorLabels" . | fromYaml -}}
{{- $more := .more | default dict -}}
{{- if .pods }}{{ $more = (include "seedbed.pod" (dict "root" .root "component" .pods) | fromJson).labels }}{{ end -}}
{{- with .root.Values.set }}{{ $_ := set $own "seedbed.dev/set" . }}{{ end -}}
{{- mergeOverwrite (dict "app.kubernetes.io/part-of" "seedbed") .root.Values.extraLabels $more $own | toYaml -}}
{{- end -}}

{{/* Labels of an object; called as those of a pod. */}}
{{- define "seedbed.labels" -}}
{{- $version := dict "app.kubernetes.io/version" .root.Chart.AppVersion "app.kubernetes.io/managed-by" .root.Release.Service "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version) -}}
{{- mergeOverwrite (include "seedbed.podLabels" . | fromYaml) $version | toYaml -}}
{{- end -}}

{{/* REGISTRY/REPOSITORY:TAG, or REGISTRY/REPOSITORY@DIGEST. Call with (dict "root" $ "component" NAME), and "repository" for another one than the component's. */}}
{{- define "seedbed.image" -}}
{{- $shared := .root.Values.image -}}
{{- $image := mergeOverwrite (deepCopy $shared) ((get .root.Values .component).image | default dict) -}}
{{- with $image.registry }}{{ . }}/{{ end -}}
{{- $image.repository | default .repository | default (include (printf "seedbed.%sRepository" .component) .root) -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .root.Chart.AppVersion }}{{ end -}}
{{- end -}}

{{/* The service account of a component: its own, or one of yours. Call as the image. */}}
{{- define "seedbed.serviceAccountName" -}}
{{- $account := (include "seedbed.pod" . | fromJson).serviceAccount -}}
{{- if not (or $account.create $account.name) -}}
  {{- fail (printf "%s.pod.serviceAccount.create is false: %s.pod.serviceAccount.name must say which one is used" .component .component) -}}
{{- end -}}
{{- $own := include (printf "seedbed.%s" .component) .root -}}
{{- if and (eq .component "cost") (not .root.Values.rbac.create) }}{{ $own = "seedbed-meter" }}{{ end -}}
{{- $account.name | default $own -}}
{{- end -}}

{{/* Repositories where the values name none. */}}
{{- define "seedbed.learnerRepository" -}}
{{- $backend := include "seedbed.setting" (dict "root" . "path" "learner.backend") -}}
{{- $type := .Values.learner.accelerator.type -}}
seedbed-learner{{ if ne $backend "tensorflow" }}-{{ $backend }}{{ end }}{{ if ne $type "none" }}-{{ $type }}{{ end }}
{{- end -}}
{{- define "seedbed.actorRepository" -}}seedbed-actor{{- end -}}

{{/* Image and command of an actor's container. Actors with a network of their own have the learner's, for CPUs. */}}
{{- define "seedbed.actorContainer" -}}
{{- if eq (include "seedbed.setting" (dict "root" . "path" "learner.inference.location")) "actor" -}}
{{- $backend := include "seedbed.setting" (dict "root" . "path" "learner.backend") -}}
{{- $repository := printf "seedbed-learner%s" (ne $backend "tensorflow" | ternary (printf "-%s" $backend) "") -}}
image: {{ include "seedbed.image" (dict "root" . "component" "actor" "repository" $repository) }}
command: [seedbed, actor]
{{- else -}}
image: {{ include "seedbed.image" (dict "root" . "component" "actor") }}
{{- end -}}
{{- end -}}

{{- define "seedbed.costRepository" -}}seedbed-cost{{- end -}}

{{/* Where the checkpoints of a learner at zero are, in words. */}}
{{- define "seedbed.keepsCheckpoints" -}}
{{- with .Values.learner.persistence -}}
{{- if include "seedbed.checkpointsBase" $ }}{{ include "seedbed.checkpointsBase" $ }}/{{ include "seedbed.owner" $ }}
{{- else if .existingClaim }}the claim {{ .existingClaim }}
{{- else if eq .type "gcsfuse" }}the bucket {{ .bucket }}
{{- else if eq .type "none" }}the learner's pod, until it goes
{{- else if include "seedbed.several" $ }}the learners' volumes
{{- else }}the learner's volume
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What the meter has written into the ConfigMap of the state, as JSON; {} without a cluster. */}}
{{- define "seedbed.state" -}}
{{- dig "data" dict (lookup "v1" "ConfigMap" .Release.Namespace (printf "%s-state" (include "seedbed.fullname" .))) | toJson -}}
{{- end -}}
