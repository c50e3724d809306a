import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { standardError } from '../../shared/base/text/text-output.js';
import { isSocketAddress } from '../../shared/wire/addresses.js';
import { runtime } from './process-runtime.js';

/** A user who sees nothing for this long does not know what the command does. */
export const PATIENCE_MS = 3000;

/** Says once, after 3 s without an answer, what a command waits for. The steps by which main is found and then asked count as one wait. */
export class MainWait {
  private waitedMs = 0;
  private isTold = false;

  constructor(
    private readonly time: Pick<Runtime, 'nowMs' | 'after'>,
    private readonly say: (text: string) => void,
    private readonly patienceMs = PATIENCE_MS,
  ) {}

  /** @param isEnd main has answered when this work is done; otherwise the next step goes on with the wait */
  async during<Result>(where: string, isEnd: boolean, work: () => Promise<Result>): Promise<Result> {
    const beganMs = this.time.nowMs();
    const timer = this.time.after(Math.max(0, this.patienceMs - this.waitedMs), () => this.tell(where));
    try {
      return await work();
    } finally {
      timer.cancel();
      this.waitedMs = isEnd ? 0 : this.waitedMs + this.time.nowMs() - beganMs;
    }
  }

  private tell(where: string): void {
    if (this.isTold) return;
    this.isTold = true;
    this.say(`waiting for main ${where}`);
  }
}

/** The one wait of this command. */
const WAIT = new MainWait(runtime, (text) => standardError.write(`odmoe: ${text}\n`));

/** Finds main. `address`: that of the main that the user names; null: this host and its network are searched. */
export function whileFinding<Result>(address: string | null, work: () => Promise<Result>): Promise<Result> {
  return WAIT.during(address === null ? 'on this host or its network' : placeOf(address), false, work);
}

/** Asks the main that was found at the address. */
export function whileAsking<Result>(address: string, work: () => Promise<Result>): Promise<Result> {
  return WAIT.during(placeOf(address), true, work);
}

function placeOf(address: string): string {
  return isSocketAddress(address) ? 'on this host' : `at ${address}`;
}
