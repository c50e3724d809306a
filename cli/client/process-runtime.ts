import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';

/** The command line is a process of its own: real clocks, real sockets. */
export const runtime = new WallRuntime();
export const transport = new GrpcTransport(runtime);
