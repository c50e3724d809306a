import type { Command } from 'commander';
import type { StatusReply } from '../../shared/wire/messages.js';
import { askStatus } from '../client/ask-status.js';
import { addMainFlags, findMain, type MainFlags, type ReachedMain } from '../client/find-main.js';
import { topLines } from '../output/wait-report.js';
import { runtime } from '../client/process-runtime.js';
import { printableLine } from '../../shared/base/text/printable-text.js';
import { MARKS, standardOutput } from '../../shared/base/text/text-output.js';

const REFRESH_MS = 1000;
const CONTROL_C = '\u0003';
/** In raw mode, a newline alone does not return to the line's beginning. */
const NEXT_LINE = [MARKS.toLineBegin, '\n'];

/** `odmoe top`: shows status, rates and the waits of decode, once a second. */
export function registerTopCommand(program: Command): void {
  const command = program.command('top').description('watch a running cluster, once a second; q ends');
  addMainFlags(command)
    .addHelpText(
      'after',
      '\nWithout a terminal it prints one look and ends.\n\nExample:\n  odmoe top --main 192.168.1.10:7600',
    )
    .action(async (flags: MainFlags) => {
      const main = await findMain(flags);
      const first = await askStatus(main);
      if (standardOutput.isTerminal && process.stdin.isTTY) await watch(main, first);
      else standardOutput.write(`${topLines(first, null).join('\n')}\n`);
    });
}

async function watch(main: ReachedMain, first: StatusReply): Promise<void> {
  const quit = new QuitKey();
  standardOutput.write(MARKS.enterScreen);
  try {
    let before = first;
    let beforeAtMs = runtime.nowMs();
    draw(topLines(first, null));
    while (await quit.waitUnlessPressed(REFRESH_MS)) {
      const status = await askStatus(main);
      const nowMs = runtime.nowMs();
      draw(topLines(status, { status: before, elapsedMs: nowMs - beforeAtMs }));
      before = status;
      beforeAtMs = nowMs;
    }
  } finally {
    standardOutput.write(MARKS.leaveScreen);
    quit.stop();
  }
}

function draw(lines: readonly string[]): void {
  const { columns, rows } = standardOutput.size;
  const shown = lines.slice(0, rows - 1).map((line) => printableLine(line).slice(0, columns));
  const parts = shown.flatMap((line, index) => [...(index === 0 ? [] : NEXT_LINE), line, MARKS.clearLineEnd]);
  standardOutput.write(MARKS.toTop, ...parts, MARKS.clearBelow);
}

/** Reads single keys from the terminal until q or Ctrl-C. */
class QuitKey {
  private pressed = false;
  private wake: () => void = () => undefined;
  private readonly onData = (data: Buffer): void => {
    const keys = data.toString('latin1');
    if (!keys.includes('q') && !keys.includes(CONTROL_C)) return;
    this.pressed = true;
    this.wake();
  };

  constructor() {
    process.stdin.setRawMode(true);
    process.stdin.on('data', this.onData);
    process.stdin.resume();
  }

  /** Resolves with false as soon as the key is pressed, with true after the time has passed. */
  async waitUnlessPressed(timeMs: number): Promise<boolean> {
    if (!this.pressed) {
      await new Promise<void>((resolve) => {
        const timer = runtime.after(timeMs, resolve);
        this.wake = () => {
          timer.cancel();
          resolve();
        };
      });
    }
    return !this.pressed;
  }

  stop(): void {
    process.stdin.off('data', this.onData);
    process.stdin.setRawMode(false);
    process.stdin.pause();
  }
}
