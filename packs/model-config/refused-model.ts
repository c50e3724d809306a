import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

/** The model has no experts: no release of odmoe will run it. */
export class DenseModelError extends OdmoeError {
  /** @param reason in words, such as "NAME names no experts" */
  constructor(path: string, reason: string) {
    super(
      'MODEL_UNSUPPORTED',
      `${path}: ${reason}: odmoe runs Mixture-of-Experts models; take a program for dense ones, such as llama.cpp`,
    );
  }
}

/** The family is read, but not this form of it. */
export class MissingPartError extends OdmoeError {
  /** @param part the operator or the format that odmoe lacks */
  constructor(
    message: string,
    readonly part: string,
  ) {
    super('MODEL_UNSUPPORTED', message);
  }
}
