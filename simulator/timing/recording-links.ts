import type { PassLayer } from '../../shared/wire/messages.js';
import type { PeerMessage } from '../../shared/transport/stream-pace.js';
import type { LinkModel } from '../network/link-model.js';
import type { OperationLog } from './operation-log.js';

/** Receives the messages between daemons. */
export type MessageListener = (from: string, to: string, message: PeerMessage) => void;

/** A network that records its messages and their times. */
export class RecordingLinks implements LinkModel {
  constructor(
    private readonly links: LinkModel,
    private readonly log: OperationLog,
    private readonly onMessage: MessageListener = () => undefined,
  ) {}

  arrivalMs(from: string, to: string, message: PeerMessage | null, bytes: number, nowMs: number): number {
    const arrivedMs = this.links.arrivalMs(from, to, message, bytes, nowMs);
    if (message !== null) {
      this.onMessage(from, to, message);
      if (this.log.keeps) this.log.add({ ...logEntry(from, message), node: to, fromMs: nowMs, toMs: arrivedMs });
    }
    return arrivedMs;
  }
}

function logEntry(
  from: string,
  message: PeerMessage,
): Omit<Parameters<OperationLog['add']>[0], 'node' | 'fromMs' | 'toMs'> {
  const { position, layer } = placeOf(message);
  const label = `${message.kind} from ${from}${layer < 0 ? '' : `, layer ${layer + 1}`}`;
  return { kind: 'message', label, position, layer, givenUp: false };
}

/** Position and layer of a message; -1: none. */
function placeOf(message: PeerMessage): { position: number; layer: number } {
  if (message.kind === 'predict') return ofPass(message.predict);
  if (message.kind === 'announce') return ofPass(message.announce);
  if (message.kind === 'restart') return { position: message.restart.position, layer: -1 };
  if (message.kind === 'execute') return ofPass(message.execute);
  if (message.kind === 'release') return ofPass(message.release);
  if (message.kind === 'cacheRows') return message.cacheRows;
  if (message.kind === 'token') return { position: message.token.position, layer: -1 };
  return { position: message.kind === 'draft' ? message.draft.position : -1, layer: -1 };
}

function ofPass({ pass, layer }: PassLayer): { position: number; layer: number } {
  return { position: pass.position, layer };
}
