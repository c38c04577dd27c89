{{/* Sections, names and labels. */}}
{{- define "seedbed.validateNames" -}}
{{- range $section := list "experiment" "image" "learner" "actor" "replay" "cost" "metrics" "networkPolicy" "auth" "tls" -}}
  {{- if not (kindIs "map" (get $.Values $section)) -}}
    {{- fail (printf "%s is not there: leave it out for the defaults, or give its keys" $section) -}}
  {{- end -}}
{{- end -}}
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
{{- $old := semverCompare "<1.36-0" .Capabilities.KubeVersion.Version -}}
{{- if and $old (not (regexMatch "^[a-z]" .Release.Name)) -}}
  {{- fail (printf "the release's name %q begins with a digit, which names of Services must not before Kubernetes 1.36 (here: %s): begin with a letter" .Release.Name .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- end -}}
