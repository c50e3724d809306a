import { GrpcTransport } from '../shared/rpc/index.js';
import { WallRuntime } from '../shared/runtime/index.js';

/** The command line is a process of its own: real clocks, real sockets. */
export const runtime = new WallRuntime();
export const transport = new GrpcTransport(runtime);
