/** The near side of an echo process of `odmoe bench hop`. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface, type Interface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { openWorkerStream } from '../../shared/transport/node-clients.js';
import type { PeerStream } from '../../shared/transport/peer-stream.js';
import type { Authority } from '../../shared/transport/trust/certificate.js';
import type { ClusterTrust } from '../../shared/transport/trust/cluster-trust.js';
import type { WorkerReply, WorkerRequest } from '../../shared/wire/messages.js';
import { passOfSequence } from '../../shared/wire/pass-rows.js';
import { type EchoAddresses, type EchoUsage, HOP_NETWORK, TRUSTED_ARGUMENT } from './hop-network.js';
import { certifyHopPeer, sealHopTrust } from './hop-trust.js';
import { connectTcp } from './tcp-frames.js';

const START_TIMEOUT_MS = 10_000;

/** Sends a payload and resolves when it has come back. Only one call at a time. */
interface EchoPeer {
  roundTrip(payload: Uint8Array): Promise<void>;
}

export interface EchoProcess {
  readonly tcp: EchoPeer;
  /** gRPC in plaintext. */
  readonly grpc: EchoPeer;
  /** gRPC behind TLS with certificates on both sides. */
  readonly tls: EchoPeer;
  /** Processor time of all its threads since its start, in microseconds. */
  processorUs(): Promise<number>;
  stop(): void;
}

/** Starts an echo process with a certificate of the authority, and connects to it in the three ways. */
export async function startEchoProcess(authority: Authority): Promise<EchoProcess> {
  const script = fileURLToPath(new URL('./echo-process.js', import.meta.url));
  const child = spawn(process.execPath, [script, TRUSTED_ARGUMENT], { stdio: ['pipe', 'pipe', 'inherit'] });
  // A process that ends by itself says why on standard error, and its streams end.
  child.stdin.on('error', () => undefined);
  const lines = createInterface({ input: child.stdout });
  const ask = async (line: string): Promise<unknown> => {
    const answer = nextLine(lines);
    child.stdin.write(`${line}\n`);
    return JSON.parse(await answer);
  };
  const { tcpPort, rpcAddress, tlsAddress } = (await ask(
    sealHopTrust(certifyHopPeer(authority, 'worker', 'echo')),
  )) as EchoAddresses;
  const tcp = await connectTcp(tcpPort);
  const grpc = await openGrpc(rpcAddress, null);
  const securedAddress = requirePresent(tlsAddress, () => 'an echo process that got its trust serves TLS');
  const tls = await openGrpc(securedAddress, certifyHopPeer(authority, 'main', 'bench'));
  return {
    tcp,
    grpc,
    tls,
    processorUs: async () => ((await ask('usage')) as EchoUsage).processorUs,
    stop: () => {
      tcp.close();
      grpc.close();
      tls.close();
      child.kill('SIGKILL');
    },
  };
}

async function nextLine(lines: Interface): Promise<string> {
  const signal = AbortSignal.timeout(START_TIMEOUT_MS);
  const [line] = (await once(lines, 'line', { signal })) as [string];
  return line;
}

async function openGrpc(address: string, trust: ClusterTrust | null): Promise<EchoPeer & { close(): void }> {
  const stream = openWorkerStream(new GrpcTransport(new WallRuntime(), null, trust), address, HOP_NETWORK);
  const peer = grpcPeer(stream);
  // The stream takes only a small first message, and tensors from a peer that is known by it.
  await peer.roundTrip(new Uint8Array(Float32Array.BYTES_PER_ELEMENT));
  stream.takeTensors();
  return { ...peer, close: () => stream.close() };
}

function grpcPeer(stream: PeerStream<WorkerRequest, WorkerReply>): EchoPeer {
  let requestId = 0;
  let settle: { resolve: () => void; reject: (error: Error) => void } | null = null;
  stream.onMessage((reply) => {
    if (reply.kind === 'result' && reply.result.requestId === requestId) settle?.resolve();
  });
  stream.onClose((error) => settle?.reject(error ?? new OdmoeError('INTERNAL', 'the echo process ended the stream')));
  return {
    roundTrip: (payload) =>
      new Promise((resolve, reject) => {
        settle = { resolve, reject };
        requestId += 1;
        const experts = [{ expert: 1, rows: [], last: true }];
        stream.send({
          kind: 'execute',
          execute: {
            requestId,
            epoch: 1,
            ...passOfSequence(1, requestId, 1),
            layer: 1,
            hiddenSize: payload.length / 4,
            dtype: 'TENSOR_TYPE_F32' as const,
            hidden: payload,
            experts,
          },
        });
      }),
  };
}
