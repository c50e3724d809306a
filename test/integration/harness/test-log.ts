import type { Logger } from '../../../shared/base/log/logger.js';

/** Most lines of a log; the oldest are removed first. */
const LINES_LIMIT = 5000;

/** Collects the log lines of daemons. They are printed when a test fails. */
export class TestLog {
  private readonly lines: string[] = [];

  logger(name: string): Logger {
    const write =
      (level: string) =>
      (event: string, fields: Record<string, unknown> = {}): void => {
        this.add(name, `${level} ${event} ${JSON.stringify(fields, showErrors)}`);
      };
    return { error: write('error'), warn: write('warn'), info: write('info'), debug: write('debug') };
  }

  add(name: string, line: string): void {
    this.lines.push(`${new Date().toISOString()} ${name}: ${line}`);
    if (this.lines.length > LINES_LIMIT) this.lines.shift();
  }

  /** Lines that contain the text. */
  matching(text: string): string[] {
    return this.lines.filter((line) => line.includes(text));
  }

  print(): void {
    process.stderr.write(`--- what the daemons logged ---\n${this.lines.join('\n')}\n--- end ---\n`);
  }
}

function showErrors(_name: string, value: unknown): unknown {
  return value instanceof Error ? `${value.name}: ${value.message}` : value;
}
