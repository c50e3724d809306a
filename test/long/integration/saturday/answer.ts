/** An answer of the cluster that runs while boxes come and go. */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { waitUntil } from '../../../integration/harness/wait-until.js';
import { type Box, collected, hasEnded, odmoeCommand } from './box.js';

export class RunningAnswer {
  private readonly text: () => string;
  private readonly problems: () => string;
  private readonly ended: Promise<unknown>;

  private constructor(
    private readonly words: readonly string[],
    private readonly client: ChildProcess,
  ) {
    this.text = collected(client.stdout);
    this.problems = collected(client.stderr);
    this.ended = once(client, 'close');
  }

  /** `odmoe prompt` with these words, on the box. */
  static of(box: Box, words: readonly string[]): RunningAnswer {
    return new RunningAnswer(words, box.spawn(odmoeCommand(['prompt', ...words])));
  }

  get soFar(): string {
    return this.text();
  }

  get isRunning(): boolean {
    return !hasEnded(this.client);
  }

  /** Resolves when more of the answer has come than now. Rejects if the answer has ended: then nothing was tried in its middle. */
  async goesOn(when: string): Promise<void> {
    const before = this.soFar.length;
    await waitUntil(
      () => `the answer goes on ${when}: ${this.problems()}`,
      () => this.soFar.length > before || !this.isRunning,
    );
    if (!this.isRunning) throw new Error(`the answer ended too early, ${when}: ${this.problems()}`);
  }

  /** All that it printed. Rejects with the client's words if the answer failed. */
  async whole(): Promise<string> {
    await this.ended;
    const { exitCode } = this.client;
    if (exitCode !== 0) throw new Error(`odmoe prompt ${this.words.join(' ')}: status ${exitCode}: ${this.problems()}`);
    return this.soFar;
  }
}
