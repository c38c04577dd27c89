{{/* Hosts of one learner: processes that train as one, each in a pod of its own. */}}

{{/* How many there are: of the values, or else of the experiment. */}}
{{- define "seedbed.hosts" -}}
{{ .Values.learner.hosts | default (include "seedbed.setting" (dict "root" . "path" "learner.hosts")) }}
{{- end -}}

{{/* The learner's workload: a StatefulSet, or with several hosts a JobSet, which restarts all as one. */}}
{{- define "seedbed.learnerKind" -}}
{{- if gt (int (include "seedbed.hosts" .)) 1 }}JobSet{{ else }}StatefulSet{{ end -}}
{{- end -}}

{{/* Name of the JobSet of a learner, of which several have one each, and of any other workload. Call with
(dict "root" $ "rank" RANK). */}}
{{- define "seedbed.learnerName" -}}
{{ include "seedbed.learner" .root }}{{ if and (eq (include "seedbed.learnerKind" .root) "JobSet") (include "seedbed.several" .root) }}-{{ .rank }}{{ end }}
{{- end -}}

{{/* Names of the JobSets, one for each learner. A JSON list. */}}
{{- define "seedbed.jobSets" -}}
{{- $names := list -}}
{{- range $rank := until (int .Values.learner.replicas) }}{{ $names = append $names (include "seedbed.learnerName" (dict "root" $ "rank" $rank)) }}{{ end -}}
{{ uniq $names | toJson }}
{{- end -}}

{{/* Name of a learner's pod, or of a host of it, in the Service. Call with (dict "root" $ "rank" RANK "host" NUMBER). */}}
{{- define "seedbed.learnerHost" -}}
{{- $kind := include "seedbed.learnerKind" .root -}}
{{- include "seedbed.learnerName" . -}}
{{- if eq $kind "JobSet" }}-host-0-{{ .host }}{{ else }}-{{ .rank }}{{ end -}}
{{- end -}}

{{/* What names the first pod of the learner to kubectl. */}}
{{- define "seedbed.firstPod" -}}
{{- if eq (include "seedbed.learnerKind" .) "JobSet" -}}
$(kubectl -n {{ .Release.Namespace }} get pods -o name -l jobset.sigs.k8s.io/jobset-name={{ include "seedbed.learnerName" (dict "root" . "rank" 0) }},batch.kubernetes.io/job-completion-index=0)
{{- else -}}
{{ include "seedbed.learnerHost" (dict "root" . "rank" 0 "host" 0) }}
{{- end -}}
{{- end -}}

{{/* Where the first host of a learner meets the others; JAX's own port. Call with (dict "root" $ "rank" RANK). */}}
{{- define "seedbed.coordinator" -}}
{{ include "seedbed.learnerHost" (dict "root" .root "rank" .rank "host" 0) }}.{{ include "seedbed.learner" .root }}.{{ .root.Release.Namespace }}.svc:8476
{{- end -}}

{{/* API and resource of a workload. Call with its kind. */}}
{{- define "seedbed.apiOf" -}}
{{ eq . "JobSet" | ternary "jobset.x-k8s.io/v1alpha2" "apps/v1" }}
{{- end -}}

{{/* The workload that is there, as JSON, with its pods in spec.replicas; {} without. Call with
(dict "root" $ "name" NAME "kind" KIND "pods" NUMBER). */}}
{{- define "seedbed.liveWorkload" -}}
{{- $api := include "seedbed.apiOf" .kind -}}
{{- $live := dict -}}
{{- if or (eq $api "apps/v1") (.root.Capabilities.APIVersions.Has $api) -}}
  {{- $live = lookup $api .kind .root.Release.Namespace .name | default dict -}}
{{- end -}}
{{- if and $live (eq .kind "JobSet") -}}
  {{- $_ := set $live.spec "replicas" ($live.spec.suspend | ternary 0 .pods) -}}
{{- end -}}
{{ $live | toJson }}
{{- end -}}

{{/* The volume that all hosts share, with a folder for each of several learners, of which only the first host's has checkpoints; "" with one
host, whose StatefulSet has its own, and where the values name another place. */}}
{{- define "seedbed.hostsClaim" -}}
{{- $persistence := .Values.learner.persistence -}}
{{- if and (gt (int (include "seedbed.hosts" .)) 1) (eq $persistence.type "pvc") (not $persistence.existingClaim) -}}
runs-{{ include "seedbed.learner" . }}
{{- end -}}
{{- end -}}
