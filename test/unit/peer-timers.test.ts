import assert from 'node:assert/strict';
import { sourcesOf } from './product-sources.js';

const MODULES = ['shared', 'packs', 'engine', 'http-api', 'main-node', 'shadow-node', 'worker-node', 'cli'];

/**
 * Files that use a plain timer of the runtime, with the number of timers and their purpose. A timer that judges the silence of another
 * machine, process or thread must be a waitForPeer, which knows when this process itself stood still. Such timers do not belong here.
 */
const PLAIN_TIMERS: Readonly<Record<string, readonly [number, string]>> = {
  'shared/base/runtime/wall-runtime.ts': [1, 'sleep is made of a timer'],
  'shared/base/runtime/virtual-runtime.ts': [2, 'sleep and every are made of timers'],
  'shared/base/runtime/peer-wait.ts': [1, 'the parts of a wait for a peer'],
  'shared/base/runtime/standstill-meter.ts': [1, 'when it is looked whether this process is woken in time'],
  'shared/transport/discovery/multicast.ts': [3, 'when to ask and announce again; own goodbye at the end'],
  'shared/transport/discovery/host-interfaces.ts': [1, 'when the own addresses are looked at again'],
  'engine/daemon/name-discovery.ts': [1, 'when the names are looked at again'],
  'shared/transport/discovery/join-loop.ts': [1, 'pause before main is asked again'],
  'engine/daemon/find-cluster.ts': [1, 'the pause between two searches for main'],
  'engine/daemon/service-notices.ts': [1, 'when the service manager hears again that this daemon runs'],
  'cli/service/change-services.ts': [1, 'pause before it is looked again whether a service has joined'],
  'engine/daemon/run-daemon.ts': [2, 'how long the own stop may take'],
  'shared/transport/peer-keepalive.ts': [1, 'pause before the next question'],
  'shared/transport/grpc-stream.ts': [1, 'how long the own end of a stream may take'],
  'shared/transport/channel.ts': [
    2,
    'how long the own end of a channel may take, and how long a removed peer has to read why',
  ],
  'shared/transport/server-port.ts': [1, 'how long a removed peer has to read why'],
  'shared/transport/refuser.ts': [1, 'how long a refused stranger has to read why'],
  'shared/transport/rpc-server.ts': [2, 'how long the own end of streams and server may take'],
  'shared/base/files/process-lock.ts': [1, 'pause before a lock is looked at again'],
  'packs/fetching/expert-fetcher.ts': [1, 'when peers are asked anew'],
  'packs/pack-for-serving.ts': [1, 'pause before a lock is looked at again'],
  'engine/trust/enrol.ts': [3, 'pauses before main is asked again, and the limit of a farewell to it'],
  'engine/trust/key-renewal.ts': [1, 'when the own key is looked at again'],
  'engine/threads/thread-queue.ts': [1, 'when an idle thread is ended'],
  'engine/emulation/exact-timer.ts': [1, 'time of an emulated device'],
  'http-api/delivery/deliver-stream.ts': [1, 'when a comment is sent, so that proxies see that the answer lives'],
  'http-api/delivery/deliver-body.ts': [2, 'when a newline is sent, for the same reason'],
  'http-api/start-http-api.ts': [2, 'how long the own end of the HTTP API may take'],
  'main-node/own-worker.ts': [1, 'when memory is taken back'],
  'main-node/stored-rows/row-store.ts': [1, 'how long the own end of the store may take'],
  'main-node/rpc/inference-service.ts': [1, 'a turn for requests that begin their next answers'],
  'main-node/verify/execution-checks.ts': [2, 'pace: when a check is made, and when its sequence ends'],
  'main-node/enrolment/keys-service.ts': [1, 'when the day of renewed keys is looked at'],
  'main-node/enrolment/enrolment-desk.ts': [1, 'when a machine that waits for the operator is told to ask again'],
  'main-node/decode/sequence-drafting.ts': [
    1,
    'pace: a pass begins without drafts that do not come; nobody is lost by it',
  ],
  'main-node/events/cluster-feed.ts': [2, 'when samples are sent'],
  'main-node/batching/pass-loop.ts': [
    2,
    'when memory is asked for again; pace: a pass begins without members that are away, and nobody is lost by it',
  ],
  'main-node/cluster/roster.ts': [1, 'workers that come together make one placement'],
  'main-node/cluster/failing-workers.ts': [1, 'when a worker that was set aside is used again'],
  'main-node/cluster/peer-dial.ts': [1, 'pause before a peer is dialled again'],
  'shadow-node/rpc/worker-links.ts': [1, 'pause before a worker is dialled again'],
  'shadow-node/rpc/shadow-service.ts': [1, 'when the status is sent'],
  'shadow-node/predictor/predictor.ts': [1, 'pace: a pass begins without tokens that are late; nobody is lost by it'],
  'engine/fetching/fetch-whole-pack.ts': [1, 'when it is looked whether main has moved'],
  'packs/hub/hub-client.ts': [1, 'pause before the hub is asked again'],
  'engine/fetching/main-asker.ts': [1, 'pauses before the manifest, or the slices, are asked for again'],
  'engine/daemon/join-patiently.ts': [1, 'pause before main is asked again to let a machine in'],
  'engine/daemon/say-main.ts': [1, 'when it is looked whether main is there, to tell the user'],
  'engine/daemon/removal-check.ts': [
    2,
    'when it is looked whether main serves this node, and how long mains are searched for',
  ],
  'engine/fetching/await-main.ts': [1, 'pause before main is asked again'],
  'engine/recording/state-recorder.ts': [1, 'pause before the lock is tried again'],
  'engine/fitting/await-recorded.ts': [1, 'pause before the rows that main has recorded are counted again'],
  'engine/fetching/fetch-report.ts': [1, 'when progress is shown'],
  'worker-node/cache/activation-record.ts': [1, 'when counts are written'],
  'worker-node/cache/expert-recoder.ts': [1, 'when idle time is used'],
  'worker-node/cache/host-memory.ts': [1, 'when free memory is looked at'],
  'worker-node/executor/expert-service.ts': [1, 'pace: executes of one layer run together'],
  'worker-node/main.ts': [1, 'when the status is sent'],
  'cli/background/start-in-background.ts': [1, 'pause before the log is read again'],
  'cli/background/stop-in-background.ts': [1, 'pause before the process is looked at again'],
  'cli/background/start-all.ts': [1, 'pause before the process is looked at again'],
  'cli/background/host-lock.ts': [1, 'pause before the lock is tried again'],
  'cli/demo/demo-cluster.ts': [1, 'pause before the status is asked for again'],
  'cli/commands/demo.ts': [1, 'when it is said what is waited for'],
  'cli/commands/up-down.ts': [1, 'when it is said what is waited for'],
  'cli/commands/drain.ts': [2, 'pause before the status is asked for again, and until others have what they need'],
  'cli/commands/top.ts': [1, 'when the view is drawn again'],
};

/** Timers of foreign code that end a wait for another party. None of them knows whether this process stood still. */
const FOREIGN_LIMITS: Readonly<Record<string, string>> = {
  'http-api/http-server.ts': "node's own limits for slow and silent HTTP connections",
  'shared/transport/channel-options.ts': "grpc-js's keepalive of a server, which is in no hurry",
};

const PLAIN_TIMER = /\b(?:runtime|PROCESS|SYSTEM)\.(?:after|sleep|every)\(|\bthis\.after\((?:delay|interval)Ms/g;
const FOREIGN_LIMIT =
  /\bdeadline:|\bsetDeadline\(|\bsocket\.setTimeout\(|AbortSignal\.timeout|grpc\.keepalive_timeout_ms'|headersTimeout:(?! 0)|client\.waitForReady\((?!Infinity)/;

describe('timers that judge a peer', () => {
  it('use the waits for peers: each plain timer of the runtime is listed in this test', () => {
    const found = sourcesOf(MODULES)
      .map(({ path, text }) => [path, [...text.matchAll(PLAIN_TIMER)].length] as const)
      .filter(([, count]) => count > 0);
    const named = Object.entries(PLAIN_TIMERS).map(([path, [count]]) => [path, count] as const);
    assert.deepEqual(Object.fromEntries(found), Object.fromEntries(named));
  });

  it('use no other source, except for the ones listed in this test', () => {
    const found = sourcesOf(MODULES).flatMap(({ path, text }) => (FOREIGN_LIMIT.test(text) ? [path] : []));
    assert.deepEqual(found.sort(), Object.keys(FOREIGN_LIMITS).sort());
  });
});
