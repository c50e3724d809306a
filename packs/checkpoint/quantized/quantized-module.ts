import { OdmoeError } from '../../../shared/base/errors/odmoe-error.js';
import type { SchemeKind, WeightScheme } from '../../model-config/weight-scheme.js';
import { type CheckpointTensor, foreignDtype } from '../../model-config/checkpoint-tensor.js';
import { MODULE_PARTS, type ModulePart } from './module-tensors.js';

/** A module's matrix: outputs x inputs. */
export interface MatrixSize {
  rows: number;
  columns: number;
}

/** Finds a tensor of the module; null: there is none. */
export type PartFinder = (part: ModulePart) => CheckpointTensor | null;

/** One module whose weight is quantized: its tensors, each checked before it is used. */
export class QuantizedModule {
  constructor(
    /** Its name with a dot behind it. */
    readonly name: string,
    readonly size: MatrixSize,
    private readonly schemes: readonly WeightScheme[],
    readonly find: PartFinder,
  ) {}

  has(part: ModulePart): boolean {
    return this.find(part) !== null;
  }

  /** @throws MODEL_CORRUPT, MODEL_UNSUPPORTED */
  tensor(part: ModulePart, dtypes: readonly string[], ...shapes: readonly (readonly number[])[]): CheckpointTensor {
    const tensor = this.find(part);
    if (tensor === null) throw this.missing(part);
    if (!dtypes.includes(tensor.dtype)) throw foreignDtype(tensor, dtypes);
    if (!shapes.some((shape) => shape.join() === tensor.shape.join())) throw this.wrongShape(tensor, shapes);
    return tensor;
  }

  optional(part: ModulePart, dtypes: readonly string[], shape: readonly number[]): CheckpointTensor[] {
    return this.has(part) ? [this.tensor(part, dtypes, shape)] : [];
  }

  hasScheme(kind: SchemeKind): boolean {
    return this.schemes.some((scheme) => scheme.kind === kind);
  }

  /** The schemes of a kind that config.json has. @throws MODEL_CORRUPT if there is none */
  schemesOf<Kind extends SchemeKind>(
    kind: Kind,
  ): readonly [Extract<WeightScheme, { kind: Kind }>, ...Extract<WeightScheme, { kind: Kind }>[]] {
    const [first, ...others] = this.schemes.filter(
      (scheme): scheme is Extract<WeightScheme, { kind: Kind }> => scheme.kind === kind,
    );
    if (first !== undefined) return [first, ...others];
    throw this.contradiction(`are of ${KIND_NAMES[kind]}, of which config.json says nothing`);
  }

  /** The error for tensors that are not what config.json says. */
  contradiction(problem: string): OdmoeError {
    return new OdmoeError(
      'MODEL_CORRUPT',
      `${this.file}the tensors of ${this.name.slice(0, -1)} ${problem}; check that config.json belongs to these weights`,
    );
  }

  unsupported(problem: string): OdmoeError {
    return new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${this.file}the tensors of ${this.name.slice(0, -1)} ${problem}; use the original checkpoint, as its makers ship it`,
    );
  }

  /** The file of one of its tensors, with a colon behind it. */
  private get file(): string {
    const [tensor] = MODULE_PARTS.flatMap((part) => this.find(part) ?? []);
    return tensor === undefined ? '' : `${tensor.path}: `;
  }

  private missing(part: ModulePart): OdmoeError {
    return new OdmoeError(
      'MODEL_CORRUPT',
      `${this.file}tensor ${this.name}${part} is missing, without which the codes of ${this.name.slice(0, -1)} cannot be read; download the checkpoint again`,
    );
  }

  private wrongShape({ path, name, shape }: CheckpointTensor, shapes: readonly (readonly number[])[]): OdmoeError {
    const expected = shapes.map((wanted) => `[${wanted.join(', ')}]`).join(' or ');
    return new OdmoeError(
      'MODEL_CORRUPT',
      `${path}: tensor ${name} has shape [${shape.join(', ')}], expected ${expected} by config.json; ` +
        'check that config.json belongs to these weights',
    );
  }
}

const KIND_NAMES: Readonly<Record<SchemeKind, string>> = {
  packed: 'packed whole numbers (pack-quantized)',
  int8: 'whole numbers of 8 bits (int-quantized)',
  fp8: 'FP8',
  mxfp4: 'MXFP4',
  mxfp8: 'MXFP8',
  nvfp4: 'NVFP4',
  gptq: 'GPTQ',
  awq: 'AWQ',
};
