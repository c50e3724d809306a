import type { MessageTap } from '../../network/channel.js';
import type { Placement } from '../../../shared/wire/messages.js';

interface Asked {
  layer: number;
  sequence: number;
}

/** The experts that a worker caches, as another node knows them: by layer, as text. */
type KnownLayers = Map<number, string>;

/**
 * With each token, main must send to a shadow that deals experts all that workers have reported about their caches.
 * Main may ignore an answer for a sequence that has ended, and then ignores its report too.
 */
export class CachedNewsWatch {
  readonly violations: string[] = [];
  /** By worker: the reports that main has received since its latest greeting. */
  private readonly heard = new Map<string, KnownLayers>();
  /** By "worker request". */
  private readonly asked = new Map<string, Asked>();
  /** By shadow: for the latest placement sent to it, the experts that each worker caches according to main. */
  private readonly sentTo = new Map<string, { epoch: number; workers: Map<string, KnownLayers> }>();
  private placement: Placement | null = null;

  constructor(private readonly main: string) {}

  readonly messages: MessageTap = (way, from, to, message) => {
    if (way === 'arrived' && to === this.main && message.kind === 'result') {
      const asked = this.asked.get(`${from} ${message.result.requestId}`);
      const { kept } = message.result;
      if (kept !== undefined && kept !== null && asked !== undefined)
        layersOf(this.heard, from).set(asked.layer, textOf(kept.experts));
      return;
    }
    if (way !== 'sent' || from !== this.main) return;
    if (message.kind === 'hello') this.greet(to);
    else if (message.kind === 'placement') this.placement = message.placement;
    else if (message.kind === 'execute') {
      const { requestId, layer, pass } = message.execute;
      this.asked.set(`${to} ${requestId}`, { layer, sequence: pass.sequence });
    } else if (message.kind === 'end') this.forgetAsked(to, message.end.sequence);
    else if (message.kind === 'token') this.check(to, message.token.epoch, message.token.kept ?? []);
  };

  private greet(node: string): void {
    this.heard.delete(node);
    this.sentTo.delete(node);
  }

  private forgetAsked(worker: string, sequence: number): void {
    for (const [key, asked] of this.asked)
      if (asked.sequence === sequence && key.startsWith(`${worker} `)) this.asked.delete(key);
  }

  private check(
    shadow: string,
    epoch: number,
    news: readonly { worker: number; layer: number; experts: readonly number[] }[],
  ): void {
    const { placement } = this;
    if (placement === null || placement.epoch !== epoch || !placement.spread) return;
    let sent = this.sentTo.get(shadow);
    if (sent?.epoch !== epoch) this.sentTo.set(shadow, (sent = { epoch, workers: new Map() }));
    for (const { worker, layer, experts } of news) {
      const id = placement.workers[worker]?.id ?? '';
      layersOf(sent.workers, id).set(layer, textOf(experts));
    }
    for (const { id } of placement.workers)
      for (const [layer, experts] of layersOf(this.heard, id)) {
        const known = layersOf(sent.workers, id).get(layer);
        if (known === experts) continue;
        layersOf(sent.workers, id).set(layer, experts);
        this.violations.push(
          `${id} has reported to main that it caches experts [${experts}] of layer ${layer}, and ${shadow} knows of [${known ?? 'none'}]`,
        );
      }
  }
}

function layersOf(of: Map<string, KnownLayers>, id: string): KnownLayers {
  const known = of.get(id) ?? new Map<number, string>();
  of.set(id, known);
  return known;
}

function textOf(experts: readonly number[]): string {
  return [...experts].sort((left, right) => left - right).join(' ');
}
