/** The real runtime and the gRPC transport, for tests of real daemons. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { realEnvironment, type NodeEnvironment } from '../engine/environment/node-environment.js';
import * as clients from '../shared/transport/node-clients.js';
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
export const openWorkerStream = clients.openWorkerStream.bind(null, TRANSPORT);
export const openShadowStream = clients.openShadowStream.bind(null, TRANSPORT);
export const openPackSource = clients.openPackSource.bind(null, TRANSPORT);
export const identifyPeer = clients.identifyPeer.bind(null, TRANSPORT);
export const joinMain = clients.joinMain.bind(null, TRANSPORT);
export const fetchCounts = clients.fetchCounts.bind(null, TRANSPORT);
export const fetchStatus = clients.fetchStatus.bind(null, TRANSPORT);
export const generate = clients.generate.bind(null, TRANSPORT);

/** The real runtime with another clock. */
export function runtimeAt(nowMs: () => number): WallRuntime {
  return Object.assign(new WallRuntime(), { nowMs });
}
