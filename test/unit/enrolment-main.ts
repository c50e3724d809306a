/** A main that lets machines in, on a real port, with its state in memory. */
import { createPublicKey } from 'node:crypto';
import type { TLSSocket } from 'node:tls';
import type { JoiningMachine } from '../../engine/trust/enrol.js';
import { EMPTY_TOKEN_BOOK, type TokenBook } from '../../engine/trust/token-book.js';
import { firstRoster } from '../../engine/trust/roster-changes.js';
import type { Roster } from '../../engine/trust/roster.js';
import { EnrolmentDesk } from '../../main-node/enrolment/enrolment-desk.js';
import { EnrolmentDoor } from '../../main-node/enrolment/enrolment-door.js';
import type { EnrolmentState } from '../../main-node/enrolment/enrolment-state.js';
import type { Timer } from '../../shared/base/runtime/runtime.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import type { RpcServer } from '../../shared/transport/transport.js';
import { type Authority, createNodeKey, spkiOf } from '../../shared/transport/trust/certificate.js';
import { RUNTIME } from '../wall.js';
import { TestCluster } from './cluster-authority.js';
import { Lines } from './log-lines.js';
import { plainIdentity } from './plain-identity.js';

const NETWORK = { keepaliveIntervalMs: 500, keepaliveTimeoutMs: 700, executeTimeoutMs: 1000, reconnectDelayMs: 100 };

/** The real runtime with clocks that a test moves on, and timers that a test can cut short. */
export class MovedRuntime extends WallRuntime {
  laterMs = 0;
  longestTimerMs = Infinity;
  /** True: no timer ends, however slow the test is. */
  hasNoTimers = false;

  override nowMs(): number {
    return super.nowMs() + this.laterMs;
  }

  override wallMs(): number {
    return super.wallMs() + this.laterMs;
  }

  override after(delayMs: number, run: () => void): Timer {
    if (this.hasNoTimers) return { cancel: () => undefined, unref: () => undefined };
    return super.after(Math.min(delayMs, this.longestTimerMs), run);
  }
}

/** Main's state, in memory. `failure`: thrown by the next saving. */
export class MemoryState implements EnrolmentState {
  readonly saves: string[] = [];
  tokens: TokenBook = EMPTY_TOKEN_BOOK;
  roster: Roster;
  failure: Error | null = null;
  /** Time of a saving. */
  saveMs = 1;

  constructor(readonly authority: Authority) {
    this.roster = firstRoster(authority.cluster);
  }

  async saveRoster(roster: Roster): Promise<void> {
    await this.save('roster');
    this.roster = roster;
  }

  async saveTokens(tokens: TokenBook): Promise<void> {
    await this.save('tokens');
    this.tokens = tokens;
  }

  private async save(what: string): Promise<void> {
    await RUNTIME.sleep(this.saveMs);
    if (this.failure !== null) throw this.failure;
    this.saves.push(what);
  }
}

export class EnrolmentMain {
  readonly log = new Lines();
  readonly runtime = new MovedRuntime();
  readonly state: MemoryState;
  desk: EnrolmentDesk;
  /** Everything that machines have sent, without TLS. */
  readonly seen: Buffer[] = [];
  /** Called for what arrives. */
  onData: (text: string, socket: TLSSocket) => void = () => undefined;
  private door: EnrolmentDoor;
  private server: RpcServer | null = null;

  constructor(readonly cluster = new TestCluster()) {
    this.state = new MemoryState(cluster.authority);
    this.desk = new EnrolmentDesk(this.state, this.runtime);
    this.door = new EnrolmentDoor(this.desk, this.runtime, this.log);
  }

  get address(): string {
    return this.server?.address ?? '';
  }

  /** `port` 0: any. */
  async start(port = 0): Promise<this> {
    this.server = await new GrpcTransport(RUNTIME, null, this.cluster.member('main')).serve({
      host: '127.0.0.1',
      port,
      network: NETWORK,
      log: this.log,
      node: { identify: () => plainIdentity() },
      enrol: (socket) => this.take(socket),
    });
    return this;
  }

  async stop(): Promise<void> {
    this.door.close();
    await this.server?.stop();
  }

  /** As if main's process was started again: what is in memory alone is lost. */
  async restart(): Promise<void> {
    const port = this.server?.port ?? 0;
    await this.stop();
    this.desk = new EnrolmentDesk(this.state, this.runtime);
    this.door = new EnrolmentDoor(this.desk, this.runtime, this.log);
    await this.start(port);
  }

  /** A token for workers. */
  async token(uses: number | null = 1, lifeMs = 3_600_000, name?: string): Promise<string> {
    const wanted = { role: 'worker' as const, uses, lifeMs };
    return (await this.desk.createToken(name === undefined ? wanted : { ...wanted, name })).text;
  }

  private take(socket: TLSSocket): void {
    this.door.take(socket);
    // After the door, or HTTP would read past this listener.
    socket.on('data', (data: Buffer) => {
      this.seen.push(data);
      this.onData(data.toString(), socket);
    });
  }
}

/** A machine with a new key. */
export function machineOf(id: string): JoiningMachine & { device: string; spki: Buffer } {
  const key = createNodeKey();
  return { id, role: 'worker', key, device: 'cuda sm_87', spki: spkiOf(createPublicKey(key)) };
}
