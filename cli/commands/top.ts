import type { Command } from 'commander';
import type { StatusReply } from '../../shared/wire/messages.js';
import { askStatus, askStatusQuietly } from '../client/ask-status.js';
import { addMainFlags, findMain, type MainFlags, type ReachedMain } from '../client/find-main.js';
import { type LineView, scrolledBy, viewedLines } from '../output/scrolled-lines.js';
import { topLines } from '../output/wait-report.js';
import { runtime } from '../client/process-runtime.js';
import { printableLine } from '../../shared/base/text/printable-text.js';
import { MARKS, standardOutput } from '../../shared/base/text/text-output.js';

const REFRESH_MS = 1000;
const CONTROL_C = '\u0003';
/** In raw mode, a newline alone does not return to the line's beginning. */
const NEXT_LINE = [MARKS.toLineBegin, '\n'];

interface TopFlags extends MainFlags {
  verbose: boolean;
}

/** `odmoe top`: shows status, rates and the waits of decode, once a second. */
export function registerTopCommand(program: Command): void {
  const command = program.command('top').description('watch a running cluster, once a second; arrows scroll, q ends');
  addMainFlags(command)
    .option('--verbose', 'all tables: devices, memory, workers, caches, links and placement', false)
    .addHelpText(
      'after',
      '\nWithout a terminal it prints one look and ends.\n\nExample:\n  odmoe top --main 192.168.1.10:7600',
    )
    .action(async (flags: TopFlags) => {
      const main = await findMain(flags);
      const first = await askStatus(main);
      if (standardOutput.isTerminal && process.stdin.isTTY) await watch(main, first, flags);
      else standardOutput.write(`${topLines(first, { earlier: null, verbose: flags.verbose }).join('\n')}\n`);
    });
}

async function watch(main: ReachedMain, first: StatusReply, { verbose }: TopFlags): Promise<void> {
  const view = new ScrolledView();
  const keys = new Keys((text) => view.scroll(text));
  standardOutput.write(MARKS.enterScreen);
  try {
    let before = first;
    let beforeAtMs = runtime.nowMs();
    view.show(topLines(first, { earlier: null, verbose }));
    while (await keys.waitUnlessEnded(REFRESH_MS)) {
      const status = await askStatusQuietly(main);
      const nowMs = runtime.nowMs();
      view.show(topLines(status, { earlier: { status: before, elapsedMs: nowMs - beforeAtMs }, verbose }));
      before = status;
      beforeAtMs = nowMs;
    }
  } finally {
    standardOutput.write(MARKS.leaveScreen);
    keys.stop();
  }
}

/** Lines on the terminal, from one that the user chooses. */
class ScrolledView {
  private lines: readonly string[] = [];
  private first = 0;

  show(lines: readonly string[]): void {
    this.lines = lines;
    this.draw();
  }

  scroll(keys: string): void {
    const first = scrolledBy(keys, this.view, this.lines.length);
    if (first === this.first) return;
    this.first = first;
    this.draw();
  }

  private get view(): LineView {
    return { first: this.first, rows: standardOutput.size.rows };
  }

  private draw(): void {
    const { columns } = standardOutput.size;
    const shown = viewedLines(this.lines, this.view).map((line) => printableLine(line).slice(0, columns));
    const parts = shown.flatMap((line, index) => [...(index === 0 ? [] : NEXT_LINE), line, MARKS.clearLineEnd]);
    standardOutput.write(MARKS.toTop, ...parts, MARKS.clearBelow);
  }
}

/** Reads keys from the terminal until q or Ctrl-C. */
class Keys {
  private ended = false;
  private wake: () => void = () => undefined;
  private readonly onData = (data: Buffer): void => {
    const keys = data.toString('latin1');
    if (!keys.includes('q') && !keys.includes(CONTROL_C)) {
      this.onOthers(keys);
      return;
    }
    this.ended = true;
    this.wake();
  };

  /** `onOthers`: gets the keys that do not end. */
  constructor(private readonly onOthers: (keys: string) => void) {
    process.stdin.setRawMode(true);
    process.stdin.on('data', this.onData);
    process.stdin.resume();
  }

  /** Resolves with false as soon as a key ends it, with true after the time has passed. */
  async waitUnlessEnded(timeMs: number): Promise<boolean> {
    if (!this.ended) {
      await new Promise<void>((resolve) => {
        const timer = runtime.after(timeMs, resolve);
        this.wake = () => {
          timer.cancel();
          resolve();
        };
      });
    }
    return !this.ended;
  }

  stop(): void {
    process.stdin.off('data', this.onData);
    process.stdin.setRawMode(false);
    process.stdin.pause();
  }
}
