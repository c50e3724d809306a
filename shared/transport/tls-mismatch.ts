/** Finds out why a connection failed of which one side speaks TLS and the other does not. */
import { connect } from 'node:tls';
import { OdmoeError } from '../base/errors/odmoe-error.js';
import { onEvent } from '../base/runtime/living.js';
import { waitForPeer } from '../base/runtime/peer-wait.js';
import { RecentMap } from '../base/runtime/recent-map.js';
import type { Runtime } from '../base/runtime/runtime.js';
import { parseAddress, isSocketAddress } from '../wire/addresses.js';
import { TLS_PROBE_INTERVAL_MS, TLS_PROBE_TIMEOUT_MS, TLS_PROBES_KEPT_LIMIT } from '../wire/limits.js';
import type { MethodRules } from './methods.js';
import type { ClusterTrust } from './trust/cluster-trust.js';
import { operatorJoinCommand } from './trust/operator-join.js';
import { TLS_VERSION } from './trust/tls-options.js';

/** The words of OpenSSL, or its codes, for a peer whose first bytes are no TLS. */
const NO_TLS = /wrong version number|WRONG_VERSION_NUMBER|packet length too long|PACKET_LENGTH_TOO_LONG|HTTP_REQUEST/;
/** The words of grpc-js for a connection that ended before it stood. */
const ENDED_AT_ONCE = /Failed to connect|ECONNRESET/;

/** True: a connection failed because the peer speaks no TLS. `failure`: the code or the words of the error. */
export function isPlaintextPeer(failure: string): boolean {
  return NO_TLS.test(failure);
}

/** The error for a peer that speaks no TLS. `peer`: such as "main at 192.168.1.10:7600". */
export function speaksNoTls(peer: string, options: { cause?: unknown } = {}): OdmoeError {
  const why =
    'its cluster has no authority (odmoe cluster init makes one), it was started with --insecure, or it is of release 0.2 or older';
  return new OdmoeError('TLS_MISMATCH', `${peer} speaks no TLS: ${why}`, options);
}

function speaksTls(peer: string, options: { cause?: unknown }): OdmoeError {
  const ways = `odmoe worker shows a code, and ${operatorJoinCommand()} lets a person in`;
  const advice = `if --insecure was given, leave that out; else this machine has to join first (${ways})`;
  return new OdmoeError('TLS_MISMATCH', `${peer} speaks TLS, and this process spoke none: ${advice}`, options);
}

interface Probe {
  readonly begunMs: number;
  readonly speaksTls: Promise<boolean>;
}

/** Explains failed connections of one process. An address is probed once a minute at most. */
export class TlsMismatches {
  private readonly probes = new RecentMap<string, Probe>(TLS_PROBES_KEPT_LIMIT);

  constructor(
    private readonly runtime: Runtime,
    private readonly trust: ClusterTrust | null,
  ) {}

  /** TLS_MISMATCH, if that is why the connection to the address failed; else the same error. */
  async explained(
    error: OdmoeError,
    address: string,
    rules: Pick<MethodRules, 'lostCode' | 'servedBy'>,
  ): Promise<OdmoeError> {
    if (error.code !== rules.lostCode || isSocketAddress(address)) return error;
    const peer = rules.servedBy === 'any node' ? `the daemon at ${address}` : `${rules.servedBy} at ${address}`;
    if (this.trust !== null) return isPlaintextPeer(error.message) ? speaksNoTls(peer, { cause: error }) : error;
    if (!ENDED_AT_ONCE.test(error.message)) return error;
    return (await this.probed(address)) ? speaksTls(peer, { cause: error }) : error;
  }

  private probed(address: string): Promise<boolean> {
    const nowMs = this.runtime.nowMs();
    const known = this.probes.get(address);
    if (known !== undefined && nowMs - known.begunMs < TLS_PROBE_INTERVAL_MS) return known.speaksTls;
    const probe = { begunMs: nowMs, speaksTls: answersTls(this.runtime, address) };
    this.probes.set(address, probe);
    return probe.speaksTls;
  }
}

/** True: what listens at the address answers to TLS, whoever it is. */
function answersTls(runtime: Runtime, address: string): Promise<boolean> {
  return new Promise((resolve) => {
    const options = { ...parseAddress(address), ...TLS_VERSION, rejectUnauthorized: false, ALPNProtocols: ['h2'] };
    const socket = connect(options);
    const end = (answer: boolean): void => {
      timer.cancel();
      for (const leave of listening) leave();
      socket.on('error', () => undefined);
      socket.destroy();
      resolve(answer);
    };
    const timer = waitForPeer(runtime, TLS_PROBE_TIMEOUT_MS, () => end(false));
    const listening = [
      onEvent(socket, 'secureConnect', () => end(true)),
      onEvent(socket, 'error', () => end(false)),
      onEvent(socket, 'close', () => end(false)),
    ];
  });
}
