{{/* The operator's rights where it looks after JobQueues: in the cluster, or in one namespace. One reason for each rule. */}}
{{- define "poolkeeper.rules" -}}
# JobQueues are what it looks after; patch, for the finalizer in their metadata.
- apiGroups: [poolkeeper.dev]
  resources: [jobqueues]
  verbs: [list, watch, patch]
# What it found and did is told in their status.
- apiGroups: [poolkeeper.dev]
  resources: [jobqueues/status]
  verbs: [patch]
# The Deployment of a template is owned by its JobQueue and blocks its deletion, which needs this right on the owner.
- apiGroups: [poolkeeper.dev]
  resources: [jobqueues/finalizers]
  verbs: [update]
# Ends of workers' containers are seen in their pods; patch, for the deletion cost of those that are to go last.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch]
# A pod belongs to a Deployment by way of a ReplicaSet.
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [get]
# Templates become Deployments of its own: get, so that it never takes over somebody else's; list and watch, to put right
# what somebody changed in its own.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
# The selector of scale targets tells which pods are the workers; patch, to scale them where spec.scaling asks for it.
- apiGroups: [apps]
  resources: [deployments/scale, statefulsets/scale, replicasets/scale]
  verbs: [get, patch]
# By which number the pods of a StatefulSet begin (spec.ordinals.start) tells which of them go first.
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get]
{{- range .Values.scaleTargets }}
# From the value scaleTargets: the same.
- apiGroups: [{{ .group | quote }}]
  resources: [{{ .resource }}/scale]
  verbs: [get, patch]
{{- end }}
# It keeps its hands off targets that one of these scales.
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [list]
- apiGroups: [keda.sh]
  resources: [scaledobjects]
  verbs: [list]
# Redis' address, user, password and keys, from the Secrets that a JobQueue names; never listed.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
# Redis' certificate authorities, from the ConfigMap that a JobQueue names; never listed.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get]
# Events tell of reaps and repairs; patch counts a repeated one up.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}
