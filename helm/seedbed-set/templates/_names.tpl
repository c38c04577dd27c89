{{/* Names, labels and checks. */}}
{{- define "set.name" -}}{{ .Release.Name }}-set{{- end -}}

{{/* What selects the controller's pod, and by which the runs' policies let it in. */}}
{{- define "set.selectorLabels" -}}
app.kubernetes.io/name: seedbed-set
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: controller
{{- end -}}

{{/* Labels of a pod: nothing that changes with the chart's version. */}}
{{- define "set.podLabels" -}}
{{- $own := include "set.selectorLabels" . | fromYaml -}}
{{- mergeOverwrite (dict "app.kubernetes.io/part-of" "seedbed") .Values.extraLabels .Values.pod.labels $own | toYaml -}}
{{- end -}}

{{- define "set.labels" -}}
{{- $own := include "set.selectorLabels" . | fromYaml -}}
{{- $version := dict "app.kubernetes.io/version" .Chart.AppVersion "app.kubernetes.io/managed-by" .Release.Service "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version) -}}
{{- mergeOverwrite (dict "app.kubernetes.io/part-of" "seedbed") .Values.extraLabels $own $version | toYaml -}}
{{- end -}}

{{/* What runs need when this release is gone and they stay. */}}
{{- define "set.keep" -}}
{{- if eq .Values.runs "keep" }}
annotations:
  helm.sh/resource-policy: keep
{{- end }}
{{- end -}}

{{/* Names in which a run's takes the place of the placeholder, of all runs; a JSON list on one line.
Call with (dict "root" $ "names" LIST). */}}
{{- define "set.resourceNames" -}}
{{- $runs := .root.Values.names -}}
{{- $first := true -}}
[
{{- range $name := .names -}}
  {{- if contains (include "set.placeholder" $) $name -}}
    {{- range $runs }}{{ if not $first }}, {{ end }}{{ replace (include "set.placeholder" $) . $name }}{{ $first = false }}{{ end -}}
  {{- else -}}
    {{- if not $first }}, {{ end }}{{ $name }}{{ $first = false -}}
  {{- end -}}
{{- end -}}
]
{{- end -}}

{{- define "set.placeholder" -}}run-of-a-set-xxxxxxxxxxxxxxxxxxxxxx{{- end -}}

{{- define "set.validate" -}}
{{- $name := .Release.Name -}}
{{- if gt (len $name) 35 -}}
  {{- fail (printf "the set's name %q has %d letters, and the names of its objects leave room for 35: choose a shorter one (seedbed deploy --name NAME)" $name (len $name)) -}}
{{- end -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
  {{- fail (printf "the set's name %q: names have small letters, digits and -, begin with a letter, and end with a letter or a digit" $name) -}}
{{- end -}}
{{- range .Values.names -}}
  {{- if gt (len .) 35 -}}
    {{- fail (printf "the run's name %q has %d letters, and the names of its pods leave room for 35: choose a shorter name of the set (seedbed deploy --name NAME)" . (len .)) -}}
  {{- end -}}
{{- end -}}
{{- range $key, $value := omit .Values.files "confirm" -}}
  {{- if not $value -}}
    {{- fail (printf "files.%s is empty: install a set with `seedbed deploy SWEEP.yaml`, or apply what it writes with --render DIR" $key) -}}
  {{- end -}}
{{- end -}}
{{- if not (or .Values.rbac.create .Values.auth.existingSecret) -}}
  {{- fail (printf "rbac.create is false and auth.existingSecret is empty: the account seedbed-set may make no Secret; make one, `seedbed tokens DIR && kubectl -n %s create secret generic %s-tokens --from-file=DIR`, and set auth.existingSecret: %s-tokens" .Release.Namespace $name $name) -}}
{{- end -}}
{{- range $key := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" -}}
  {{- if or (hasKey $.Values.extraLabels $key) (hasKey $.Values.pod.labels $key) -}}
    {{- fail (printf "extraLabels or pod.labels sets %s, by which the chart selects its own pods: choose another label" $key) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
