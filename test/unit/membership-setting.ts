import { Membership, type MembershipOptions } from '../../main-node/cluster/membership.js';
import { Roster } from '../../main-node/cluster/roster.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { NodeIdentity, Refusal, RoleName, WorkerReply, WorkerRequest } from '../../shared/wire/messages.js';
import type { Transport } from '../../shared/transport/transport.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { MemoryStream } from '../integration/harness/memory-stream.js';
import { testSettings } from '../integration/harness/test-settings.js';
import { GROUPING, plainShape } from './plain-shape.js';
import { plainIdentity } from './plain-identity.js';

export const SILENT = {
  error: () => undefined,
  warn: () => undefined,
  info: () => undefined,
  debug: () => undefined,
};

export const identity = (id: string, role: RoleName = 'ROLE_WORKER', address = ''): NodeIdentity =>
  plainIdentity({ id, role, bootId: `boot of ${id}`, address });

export interface TestMembership {
  roster: Roster;
  membership: Membership;
}

/** Main's membership with a new roster. `rosterRuntime` is the roster's runtime. */
export function membershipOf(
  changes: Pick<MembershipOptions, 'runtime' | 'transport'> & Partial<MembershipOptions>,
  rosterRuntime: Runtime,
): TestMembership {
  const shape = plainShape({ expertLayers: 4, experts: 8, hiddenSize: 4 });
  const roster = new Roster(shape, GROUPING, 100, rosterRuntime, SILENT);
  const { network } = testSettings('main', '/nowhere');
  const membership = new Membership({
    identity: () => identity('main', 'ROLE_MAIN'),
    network: { ...network, reconnectDelayMs: 5 },
    trust: null,
    shape,
    roster,
    interfaces: { addresses: [] },
    shadowListener: {
      onPrediction: () => undefined,
      onRestart: () => undefined,
      onDraft: () => undefined,
      onPrefixKept: () => true,
      onSequenceDropped: () => undefined,
      onLost: () => undefined,
      onDrained: () => undefined,
    },
    log: SILENT,
    ...changes,
  });
  return { roster, membership };
}

/** A stream that main has opened. */
export interface OpenedStream {
  address: string;
  stream: MemoryStream<WorkerRequest, WorkerReply>;
}

/** Answers hello as the daemon of its address would. */
class AnsweredStream extends MemoryStream<WorkerRequest, WorkerReply> {
  constructor(private readonly answer: () => WorkerReply) {
    super();
  }

  override send(message: WorkerRequest): void {
    super.send(message);
    if (message.kind === 'hello') queueMicrotask(() => this.arrive(this.answer()));
  }
}

/** Scripted workers: the worker at each address, whether it refuses main, and the calls of main. */
export class ScriptedWorkers {
  /** Workers by address. No worker answers at other addresses. */
  readonly at = new Map<string, NodeIdentity>();
  readonly refusing = new Map<string, Refusal>();
  /** Addresses that main asked for their identity. */
  readonly asked: string[] = [];
  readonly opened: OpenedStream[] = [];
  /** The highest epoch that the workers' welcomes report. */
  highestEpoch = 0;

  get transport(): Transport {
    const never = (): never => {
      throw new Error('nothing else is to be asked');
    };
    return {
      serve: never,
      replies: never,
      connect: never,
      call: (async (address: string) => {
        this.asked.push(address);
        return this.who(address);
      }) as unknown as Transport['call'],
      stream: ((address: string) => {
        const stream = new AnsweredStream(() => this.answer(address));
        this.opened.push({ address, stream });
        return stream;
      }) as unknown as Transport['stream'],
    };
  }

  /** Addresses that streams were opened to, in their order. */
  get greeted(): string[] {
    return this.opened.map(({ address }) => address);
  }

  /** The last stream that was opened. */
  get last(): MemoryStream<WorkerRequest, WorkerReply> {
    const opened = this.opened.at(-1);
    if (opened === undefined) throw new Error('no stream was opened');
    return opened.stream;
  }

  private answer(address: string): WorkerReply {
    const refusal = this.refusing.get(address);
    if (refusal !== undefined) return { kind: 'refusal', refusal };
    const welcome = { identity: this.who(address), partialPack: false, highestEpoch: this.highestEpoch };
    return { kind: 'welcome', welcome };
  }

  private who(address: string): NodeIdentity {
    const found = this.at.get(address);
    if (found === undefined) throw new OdmoeError('NO_MAIN', `nobody is at ${address}`);
    return found;
  }
}
