{{/* A container beside the learner that evaluates checkpoints, on CPUs of its own. */}}

{{- define "seedbed.evaluation" -}}
{{- $learner := .Values.learner }}
- name: evaluation
  image: {{ include "seedbed.image" (dict "root" . "component" "learner") }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [seedbed, evaluate]
  args:
    {{- with include "seedbed.checkpoints" . }}
    - {{ . }}
    - --rows={{ include "seedbed.runDirectory" $ }}
    {{- else }}
    - {{ include "seedbed.runDirectory" . }}
    {{- end }}
    - --follow
    - --linger
    - --trust # the run is of this release
    - --episodes={{ int64 $learner.evaluation.episodes }}
    {{- with int64 $learner.evaluation.everyFrames }}
    - --every={{ . }}
    {{- end }}
    - --set=learner.device=cpu
  env:
    {{- include "seedbed.env" . | nindent 4 }}
    {{- if include "seedbed.several" . }}
    - name: SEEDBED_RANK
      valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
    {{- end }}
  securityContext:
    {{- include "seedbed.containerSecurity" . | nindent 4 }}
  resources:
    {{- toYaml $learner.evaluation.resources | nindent 4 }}
  terminationMessagePolicy: FallbackToLogsOnError
  volumeMounts:
    - {name: runs, mountPath: /runs}
    - {name: evaluation-tmp, mountPath: /tmp}
{{- end -}}

{{/* The name of the run: of its directory, its bill, its checkpoints. */}}
{{- define "seedbed.run" -}}
{{ .Values.learner.run | default (include "seedbed.fullname" .) }}
{{- end -}}

{{/* The folder below which releases have their checkpoints; nothing where they are in the run directory. */}}
{{- define "seedbed.checkpointsBase" -}}
{{ .Values.learner.persistence.checkpoints | default (include "seedbed.setting" (dict "root" . "path" "learner.checkpoint.directory")) | trimSuffix "/" }}
{{- end -}}

{{/* The folder of this run's checkpoints, and of one learner's of several; or nothing. */}}
{{- define "seedbed.checkpoints" -}}
{{- with include "seedbed.checkpointsBase" . -}}
{{ . }}/{{ include "seedbed.owner" $ }}{{ if include "seedbed.several" $ }}/learner-$(SEEDBED_RANK){{ end }}
{{- end -}}
{{- end -}}

{{/* The owner of checkpoints, which is their path below the common folder. */}}
{{- define "seedbed.owner" -}}
{{ .Release.Namespace }}/{{ include "seedbed.fullname" . }}/{{ include "seedbed.run" . }}
{{- end -}}

{{/* The run directory of a learner, and its folder there where learners share a volume. */}}
{{- define "seedbed.runDirectory" -}}
/runs/{{ include "seedbed.run" . }}{{ include "seedbed.ownFolder" . }}
{{- end -}}

{{- define "seedbed.ownFolder" -}}
{{- $learner := .Values.learner -}}
{{- if and (include "seedbed.several" .) (or $learner.persistence.existingClaim (eq $learner.persistence.type "gcsfuse") (include "seedbed.hostsClaim" .)) -}}
/learner-$(SEEDBED_RANK)
{{- end -}}
{{- end -}}
