package main

import (
	"reflect"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// served lists every kind in requests and responses, except for lists, which are assembled from their
// items.
func served() map[schema.GroupVersionKind]reflect.Type {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, admissionv1.AddToScheme, admissionv1beta1.AddToScheme,
		admissionregistrationv1.AddToScheme, appsv1.AddToScheme, authenticationv1.AddToScheme,
		authorizationv1.AddToScheme, autoscalingv1.AddToScheme, autoscalingv2.AddToScheme,
		batchv1.AddToScheme, certificatesv1.AddToScheme, coordinationv1.AddToScheme,
		discoveryv1.AddToScheme, eventsv1.AddToScheme, flowcontrolv1.AddToScheme,
		networkingv1.AddToScheme, nodev1.AddToScheme, policyv1.AddToScheme, rbacv1.AddToScheme,
		resourcev1.AddToScheme, schedulingv1.AddToScheme, storagev1.AddToScheme,
		apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	kinds := map[schema.GroupVersionKind]reflect.Type{}
	for gvk, t := range scheme.AllKnownTypes() {
		// The scheme repeats the options of meta.k8s.io in every group.
		if gvk.Version == runtime.APIVersionInternal || strings.HasSuffix(gvk.Kind, "List") ||
			strings.HasPrefix(t.PkgPath(), "k8s.io/apimachinery/") {
			continue
		}
		switch gvk.Kind {
		case "SerializedReference", "RangeAllocation", "PodStatusResult":
			// No resource uses these.
			continue
		}
		kinds[gvk] = t
	}
	add := func(gv schema.GroupVersion, objects ...any) {
		for _, object := range objects {
			t := reflect.TypeOf(object)
			kinds[gv.WithKind(t.Name())] = t
		}
	}
	add(metav1.SchemeGroupVersion, metav1.CreateOptions{}, metav1.UpdateOptions{}, metav1.PatchOptions{},
		metav1.DeleteOptions{}, metav1.GetOptions{}, metav1.ListOptions{}, metav1.PartialObjectMetadata{})
	add(corev1.SchemeGroupVersion, metav1.Status{})
	add(policyv1beta1.SchemeGroupVersion, policyv1beta1.Eviction{})
	add(admissionregistrationv1beta1.SchemeGroupVersion,
		admissionregistrationv1beta1.MutatingWebhookConfiguration{},
		admissionregistrationv1beta1.ValidatingWebhookConfiguration{})
	return kinds
}
