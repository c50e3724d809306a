/** The real runtime and the gRPC transport, for tests of real daemons. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { realEnvironment, type NodeEnvironment } from '../engine/environment/node-environment.js';
import { GrpcTransport } from '../shared/transport/grpc-transport.js';
import { WallRuntime } from '../shared/base/runtime/wall-runtime.js';

export const RUNTIME = new WallRuntime();
export const TRANSPORT = new GrpcTransport(RUNTIME);
const DATA_DIRECTORY = mkdtempSync(join(tmpdir(), 'odmoe-test-data-'));
process.on('exit', () => rmSync(DATA_DIRECTORY, { recursive: true, force: true }));

export const ENVIRONMENT: NodeEnvironment = {
  ...realEnvironment({ emulation: null }),
  dataDirectory: DATA_DIRECTORY,
};

export const startRpcServer = TRANSPORT.serve.bind(TRANSPORT);
export const openWorkerStream = TRANSPORT.openWorkerStream.bind(TRANSPORT);
export const openShadowStream = TRANSPORT.openShadowStream.bind(TRANSPORT);
export const openPackSource = TRANSPORT.openPackSource.bind(TRANSPORT);
export const identifyPeer = TRANSPORT.identifyPeer.bind(TRANSPORT);
export const joinMain = TRANSPORT.joinMain.bind(TRANSPORT);
export const fetchCounts = TRANSPORT.fetchCounts.bind(TRANSPORT);
export const fetchStatus = TRANSPORT.fetchStatus.bind(TRANSPORT);
export const generate = TRANSPORT.generate.bind(TRANSPORT);

/** The real runtime with another clock. */
export function runtimeAt(nowMs: () => number): WallRuntime {
  return Object.assign(new WallRuntime(), { nowMs });
}
