import type { RunningNode } from './running-node.js';

/** `waiting`: for main, or for the operator who lets it in. `serving`: it listens. */
export type DaemonPhase = 'starting' | 'waiting' | 'serving' | 'stopping';

/** The state of a daemon, for its service manager (service-notices.ts) and for `odmoe health` (health-socket.ts). */
export class DaemonReport {
  private told: { readonly phase: DaemonPhase; readonly words: string } = { phase: 'starting', words: 'starts' };
  private node: RunningNode | null = null;
  private readonly listeners: (() => void)[] = [];

  get phase(): DaemonPhase {
    return this.told.phase;
  }

  /** One line for the user. */
  get words(): string {
    if (this.node === null || this.told.phase !== 'serving') return this.told.words;
    const hasMain = this.node.hasMain?.();
    const main = hasMain === true ? '; main is connected' : '; waits for main';
    return `listens on ${this.node.address}${hasMain === undefined ? '' : main}`;
  }

  waiting(words: string): void {
    this.tell('waiting', words);
  }

  serving(node: RunningNode): void {
    this.node = node;
    this.tell('serving', 'serves');
  }

  stopping(words: string): void {
    this.tell('stopping', words);
  }

  /** `listener` is called at each change of the phase, and when other words are told. */
  watch(listener: () => void): void {
    this.listeners.push(listener);
  }

  private tell(phase: DaemonPhase, words: string): void {
    this.told = { phase, words };
    for (const listener of this.listeners) listener();
  }
}
