{{/* The name of all namespaced objects: the release's, with the chart's where the release's does not hold it. */}}
{{- define "poolkeeper.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of cluster-wide objects: releases of one name may be in several namespaces. */}}
{{- define "poolkeeper.clusterWideName" -}}
{{- printf "%s:%s" .Release.Namespace (include "poolkeeper.fullname" .) -}}
{{- end -}}

{{- define "poolkeeper.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "poolkeeper.labels" -}}
{{ include "poolkeeper.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "poolkeeper.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "poolkeeper.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* The operator as the subject of a binding. */}}
{{- define "poolkeeper.subjects" -}}
- kind: ServiceAccount
  name: {{ include "poolkeeper.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}
