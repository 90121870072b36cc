{{- define "lockgate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "lockgate.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "lockgate.chart" -}}
{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "lockgate.labels" -}}
helm.sh/chart: {{ include "lockgate.chart" . }}
{{ include "lockgate.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "lockgate.selectorLabels" -}}
app.kubernetes.io/name: {{ include "lockgate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lockgate.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "lockgate.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "lockgate.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/* The names of the Service, for certificates that servers issue. */}}
{{- define "lockgate.names" -}}
{{- $name := include "lockgate.fullname" . }}
{{- $own := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) }}
{{- concat $own .Values.tls.names | join "," }}
{{- end }}

{{/* The Secrets that are mounted, by the name of their folder. */}}
{{- define "lockgate.secrets" -}}
{{- with .Values.tls.existingSecret }}
tls: {{ . }}
{{- end }}
{{- with .Values.auth.tokensSecret }}
tokens: {{ . }}
{{- end }}
{{- with .Values.auth.clientCASecret }}
client-ca: {{ . }}
{{- end }}
{{- if and (eq .Values.storage.type "etcd") .Values.storage.etcd.tlsSecret }}
etcd: {{ .Values.storage.etcd.tlsSecret }}
{{- end }}
{{- end }}
