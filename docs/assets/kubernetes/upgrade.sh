#!/bin/sh
# Replaces the version of the job in orders.yaml: stops it, takes a savepoint, and starts the new version from that.
# If the new version does not complete a micro-batch, the former one continues from its checkpoint.
#
#     ./upgrade.sh registry.example.com/orders:2
set -eu

image=$1
upgrade=$(date -u +%Y%m%d%H%M%S)

container='{.spec.template.spec.containers[0]'
former=$(kubectl get statefulset/orders -o jsonpath="$container.image}")
checkpoint=$(kubectl get statefulset/orders -o jsonpath="$container.env[?(@.name=='DSV2_CHECKPOINT')].value}")
savepoint=$(kubectl get statefulset/orders -o jsonpath="$container.env[?(@.name=='DSV2_SAVEPOINT')].value}")

stop() { # SIGTERM: the job ends after the running micro-batch
    kubectl scale statefulset/orders --replicas=0
    kubectl wait --for=delete pod/orders-0 --timeout=180s
}

start() { # image, checkpoint, and the savepoint from which the checkpoint has begun, if any
    begun=DSV2_SAVEPOINT- # removes the variable
    [ -z "$3" ] || begun="DSV2_SAVEPOINT=$3"
    kubectl set image statefulset/orders "orders=$1" &&
        kubectl set env statefulset/orders "DSV2_CHECKPOINT=$2" "$begun" &&
        kubectl scale statefulset/orders --replicas=1 &&
        kubectl rollout status statefulset/orders --timeout=300s
}

take_savepoint() { # with the version that has written the checkpoint
    kubectl apply -f - <<END &&
apiVersion: batch/v1
kind: Job
metadata: { name: orders-savepoint-$upgrade }
spec:
  backoffLimit: 0
  ttlSecondsAfterFinished: 86400
  template:
    spec:
      restartPolicy: Never
      securityContext: { runAsNonRoot: true, runAsUser: 1000, fsGroup: 1000 }
      containers:
        - name: savepoint
          image: $former
          command: [dsv2, savepoint, create, $checkpoint, /data/$upgrade/savepoint]
          volumeMounts: [{ name: data, mountPath: /data }]
      volumes: [{ name: data, persistentVolumeClaim: { claimName: data-orders-0 } }]
END
        kubectl wait --for=condition=complete "job/orders-savepoint-$upgrade" --timeout=600s
}

stop
if take_savepoint && start "$image" "/data/$upgrade/checkpoint" "/data/$upgrade/savepoint"; then
    echo "$image runs. Change orders.yaml before you apply it again:"
    echo "DSV2_CHECKPOINT: /data/$upgrade/checkpoint, DSV2_SAVEPOINT: /data/$upgrade/savepoint"
    exit
fi
echo "The upgrade to $image failed. $former continues." >&2
stop
start "$former" "$checkpoint" "$savepoint"
exit 1
