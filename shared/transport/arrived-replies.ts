import { OdmoeError } from '../base/errors/odmoe-error.js';
import { waitForPeer } from '../base/runtime/peer-wait.js';
import type { Runtime } from '../base/runtime/runtime.js';
import type { MethodRules } from './methods.js';

/** The replies of one call that have arrived at the caller, over any transport, for one reader. */
export class ArrivedReplies {
  private readonly arrived: Buffer[] = [];
  private over: { error: OdmoeError | null } | null = null;
  private wake: () => void = () => undefined;

  /** `idleLimitMs`: the longest wait for a next reply; Infinity: any. The reader's own pauses do not count. After it the call fails with the lost code. */
  constructor(
    private readonly runtime: Runtime,
    private readonly peer: string,
    private readonly rules: Pick<MethodRules, 'lostCode'>,
    private readonly idleLimitMs: number,
  ) {}

  get unread(): number {
    return this.arrived.length;
  }

  add(reply: Buffer): void {
    this.arrived.push(reply);
    this.wake();
  }

  /** No more replies come. The first call decides. */
  end(error: OdmoeError | null): void {
    this.over ??= { error };
    this.wake();
  }

  /** All replies in order; then the error is thrown, if one ended the call. `taken`: called for each reply. */
  async *read(taken: () => void): AsyncGenerator<Buffer, void, undefined> {
    for (;;) {
      const next = this.arrived.shift();
      if (next !== undefined) {
        taken();
        yield next;
      } else if (this.over === null) await this.change();
      else if (this.over.error === null) return;
      else throw this.over.error;
    }
  }

  private change(): Promise<void> {
    const { runtime, peer, rules, idleLimitMs } = this;
    return new Promise((resolve, reject) => {
      const silent = (): void => {
        const text = `${peer} has sent nothing for ${idleLimitMs / 1000} s: is it overloaded or suspended?`;
        reject(new OdmoeError(rules.lostCode, text));
      };
      const timer = Number.isFinite(idleLimitMs) ? waitForPeer(runtime, idleLimitMs, silent) : null;
      this.wake = () => {
        timer?.cancel();
        resolve();
      };
    });
  }
}
