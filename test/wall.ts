/** The real runtime and gRPC, for tests of what really runs. */
import { realEnvironment } from '../engine/environment/node-environment.js';
import { GrpcTransport } from '../shared/rpc/index.js';
import { WallRuntime } from '../shared/runtime/index.js';

export const RUNTIME = new WallRuntime();
export const TRANSPORT = new GrpcTransport(RUNTIME);
export const ENVIRONMENT = realEnvironment({ emulation: null });

export const startRpcServer = TRANSPORT.serve.bind(TRANSPORT);
export const openWorkerStream = TRANSPORT.openWorkerStream.bind(TRANSPORT);
export const openShadowStream = TRANSPORT.openShadowStream.bind(TRANSPORT);
export const openPackSource = TRANSPORT.openPackSource.bind(TRANSPORT);
export const identifyPeer = TRANSPORT.identifyPeer.bind(TRANSPORT);
export const joinMain = TRANSPORT.joinMain.bind(TRANSPORT);
export const fetchStatus = TRANSPORT.fetchStatus.bind(TRANSPORT);
export const generate = TRANSPORT.generate.bind(TRANSPORT);

/** The real runtime with another clock. */
export function runtimeAt(nowMs: () => number): WallRuntime {
  return Object.assign(new WallRuntime(), { nowMs });
}
