import type { Logger } from '../../shared/base/log/logger.js';

/** Lines that a daemon logs. */
export class Lines implements Logger {
  readonly all: string[] = [];
  readonly warnings: string[] = [];
  readonly error = (text: string, fields = {}): void => this.note(text, fields);
  readonly warn = (text: string, fields = {}): void => {
    this.warnings.push(text);
    this.note(text, fields);
  };
  readonly info = (text: string, fields = {}): void => this.note(text, fields);
  readonly debug = (text: string, fields = {}): void => this.note(text, fields);

  private note(text: string, fields: object): void {
    const shown = (_: string, value: unknown): unknown => (value instanceof Error ? value.message : value);
    this.all.push(`${text} ${JSON.stringify(fields, shown)}`);
  }
}
