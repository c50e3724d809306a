/**
 * Checks that hold for every decoded message. They follow from the .proto files and from the tables of numbers, texts and rules. An inner
 * message is present unless the .proto file calls it optional; one member of a oneof is set; numbers are within their bounds; texts are short,
 * and hold nothing that a terminal would obey. Absent optional fields become null.
 */
import type { PackageDefinition } from '@grpc/proto-loader';
import { OdmoeError } from '../base/errors/odmoe-error.js';
import type { ErrorCode } from '../base/errors/registry.js';
import { TEXT_LENGTH_LIMIT } from './limits.js';
import { MESSAGE_RULES } from './message-rules.js';
import { type BoundedMessage, MESSAGES_OF_USERS, NUMBER_BOUNDS } from './wire-numbers.js';
import { type DescribedField, describedFields, oneofsOf } from './wire-outline.js';

type Fields = Record<string, unknown>;
type Check = (message: Fields) => void;

/** Names of the messages that report errors. Their texts are cleaned where they are shown. */
const MESSAGES_OF_ERRORS: readonly string[] = ['Refusal', 'StreamError', 'ExpertFailure'];

/** Characters that a terminal obeys. */
const CONTROL_CHARACTER = /\p{Cc}/u;

/**
 * The check of one kind of message. It throws PROTOCOL_VIOLATION, or `code` if a oneof of the message is empty. Rules of a message may have
 * other codes.
 */
export function messageCheckOf(
  definitions: PackageDefinition,
  message: string,
  code: ErrorCode,
): (message: object) => void {
  const areTextsFree = MESSAGES_OF_USERS.includes(message);
  const check = new MessageChecks(definitions, code, areTextsFree).of(message);
  return (decoded) => check?.(decoded as Fields);
}

class MessageChecks {
  constructor(
    private readonly definitions: PackageDefinition,
    private readonly code: ErrorCode,
    /** True for messages of users: the client that asks main cleans the texts of the answer. */
    private readonly areTextsFree: boolean,
  ) {}

  /** null: all values are allowed. */
  of(message: string): Check | null {
    const fields = describedFields(this.definitions, message);
    const oneofs = oneofsOf(this.definitions, message);
    const rule = MESSAGE_RULES[message];
    const steps = oneofs.includes('kind')
      ? [this.unionCheck(message, fields)]
      : fields.flatMap((field) => this.fieldChecks(message, field, oneofs.includes(`_${field.name}`)));
    if (steps.length === 0 && rule === undefined) return null;
    return (decoded) => {
      for (const step of steps) step(decoded);
      rule?.(decoded as never);
    };
  }

  /** `kind` names the member that is set. */
  private unionCheck(message: string, fields: readonly DescribedField[]): Check {
    const members = new Map(fields.map((field) => [field.name, this.within(field)]));
    return (decoded) => {
      const { kind } = decoded;
      if (typeof kind !== 'string') {
        throw new OdmoeError(this.code, `a ${message} came with nothing in it that this version knows`);
      }
      members.get(kind)?.(decoded[kind] as Fields);
    };
  }

  private fieldChecks(message: string, field: DescribedField, isOptional: boolean): Check[] {
    const { name, label } = field;
    const value = this.valueCheck(message, field);
    if (label === 'LABEL_REPEATED') {
      if (value === null) return [];
      return [
        (decoded) => {
          for (const member of decoded[name] as unknown[]) value(member);
        },
      ];
    }
    if (isOptional) return [(decoded) => checkOptional(decoded, name, value)];
    return value === null ? [] : [(decoded) => value(decoded[name])];
  }

  /** The check of one value of the field. */
  private valueCheck(message: string, field: DescribedField): ((value: unknown) => void) | null {
    const { name, type, label } = field;
    if (type === 'TYPE_STRING') return this.areTextsFree ? null : textCheck(message, name);
    if (type !== 'TYPE_MESSAGE') return numberCheck(message, name);
    const within = this.within(field);
    if (label === 'LABEL_REPEATED') return within as ((value: unknown) => void) | null;
    return (value) => {
      if (value === null || value === undefined) throw violation(`a ${message} came without its ${name}`);
      within?.(value as Fields);
    };
  }

  private within({ type, typeName }: DescribedField): Check | null {
    return type === 'TYPE_MESSAGE' ? this.of(typeName) : null;
  }
}

/** The decoder leaves out absent fields, and marks present ones (`_seed: 'seed'`). */
function checkOptional(decoded: Fields, name: string, check: ((value: unknown) => void) | null): void {
  const mark = `_${name}`;
  if (mark in decoded) delete decoded[mark];
  decoded[name] ??= null;
  if (decoded[name] !== null) check?.(decoded[name]);
}

function textCheck(message: string, name: string): ((value: unknown) => void) | null {
  if (MESSAGES_OF_USERS.includes(message)) return null;
  const isShown = !MESSAGES_OF_ERRORS.includes(message);
  return (value) => {
    const text = value as string;
    if (text.length > TEXT_LENGTH_LIMIT) throw violation(`${name} of a ${message} is too long`);
    if (isShown && CONTROL_CHARACTER.test(text)) throw violation(`${name} of a ${message} holds control characters`);
  };
}

function numberCheck(message: string, name: string): ((value: unknown) => void) | null {
  const bounds: Readonly<Record<string, number>> = NUMBER_BOUNDS[message as BoundedMessage] ?? {};
  const most = bounds[name];
  if (most === undefined) return null;
  return (value) => {
    if (typeof value === 'number' && value >= 0 && value <= most) return;
    throw violation(`${name} of a ${message} is ${String(value)}: 0 to ${most} are expected`);
  };
}

function violation(message: string): OdmoeError {
  return new OdmoeError('PROTOCOL_VIOLATION', message);
}
