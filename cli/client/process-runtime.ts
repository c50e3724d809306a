import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';

/** The command line is a separate process, with real clocks and real sockets. */
export const runtime = new WallRuntime();
export const transport = new GrpcTransport(runtime);
