/** What the text of an answer must be: one of the alternatives, from its first byte to its last. Special tokens count as their names. */
export interface OutputFormat {
  alternatives: OutputSequence[];
}

export interface OutputSequence {
  parts: OutputPart[];
}

export type OutputPart =
  /** This text. */
  | { kind: 'literal'; literal: string }
  /** A JSON value that this JSON schema (a JSON text) takes. */
  | { kind: 'jsonSchema'; jsonSchema: string }
  /** Anything up to this text, and with it. */
  | { kind: 'until'; until: string }
  /** A text without quotes. */
  | { kind: 'schemaText'; schemaText: SchemaText };

/** A text as it is, not as JSON: one that the schema takes as a string. */
export interface SchemaText {
  /** A JSON schema, as a JSON text. */
  jsonSchema: string;
  /** What the text does not hold: what ends it where it stands. */
  without: string;
}
