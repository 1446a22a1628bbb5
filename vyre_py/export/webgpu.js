// Runs a Program that vyre-py compiled to WGSL: checks arguments against its interface, binds them, and launches. The same for every Program; what differs is
// the description beside it, which `vyre_py.export_web` writes.
//
//   const kernel = await load();                               // or load({device}) with a GPUDevice of your own
//   const {y} = await kernel.dispatch({x, y: ys, a: 2});       // typed arrays in and out; what is only written may be left out
//   const launch = kernel.bind({x, y: ys, a: 2});              // memory that stays: launch.run(), launch.set({a: 3}), await launch.read("y"), launch.destroy()
//
// An array of more axes than one is {data, shape}. Memory of your own is {buffer, shape}, a GPUBuffer with the usage STORAGE. A size that no array tells goes by
// its name. Integers of 64 bits are BigInts, floats of 16 bits their bits in a Uint16Array (or a Float16Array).

const USAGE = {COPY_SRC: 4, COPY_DST: 8, MAP_READ: 1, UNIFORM: 64, STORAGE: 128};
const COMPUTE = 4;
const WORD = 4;
const LIMIT = 2n ** 32n;
const HEADER = {GROUPS_X: 0, GROUPS_Z: 1};

const HALF = globalThis.Float16Array ? ["Uint16Array", "Float16Array"] : ["Uint16Array"];
// Type of a component -> its bytes, the arrays that hold it, and the least and greatest integer.
const TYPES = {
  bool: {bytes: 1, arrays: ["Uint8Array"], range: [0n, 1n]},
  u8: {bytes: 1, arrays: ["Uint8Array", "Uint8ClampedArray"], range: [0n, 255n]},
  i8: {bytes: 1, arrays: ["Int8Array"], range: [-128n, 127n]},
  f8e4m3: {bytes: 1, arrays: ["Uint8Array"]},
  f8e5m2: {bytes: 1, arrays: ["Uint8Array"]},
  u16: {bytes: 2, arrays: ["Uint16Array"], range: [0n, 65535n]},
  i16: {bytes: 2, arrays: ["Int16Array"], range: [-32768n, 32767n]},
  f16: {bytes: 2, arrays: HALF},
  bf16: {bytes: 2, arrays: ["Uint16Array"]},
  u32: {bytes: 4, arrays: ["Uint32Array"], range: [0n, 2n ** 32n - 1n]},
  i32: {bytes: 4, arrays: ["Int32Array"], range: [-(2n ** 31n), 2n ** 31n - 1n]},
  f32: {bytes: 4, arrays: ["Float32Array"]},
  u64: {bytes: 8, arrays: ["BigUint64Array"], range: [0n, 2n ** 64n - 1n]},
  i64: {bytes: 8, arrays: ["BigInt64Array"], range: [-(2n ** 63n), 2n ** 63n - 1n]},
};

/** Arguments that do not fit; nothing was run. `problems` has a sentence for each. */
export class BindingError extends Error {
  constructor(what, problems) {
    super(`the arguments do not fit '${what}':\n` + problems.map((p) => `  - ${p}`).join("\n"));
    this.name = "BindingError";
    this.problems = problems;
  }
}

/** What this browser or device lacks. */
export class Unsupported extends Error {
  constructor(text) {
    super(text);
    this.name = "Unsupported";
  }
}

// ---- sizes: exact, as BigInts. A number is a constant, a text the name of a dim, an array an operation of two sizes.

const ceilDiv = (a, b) => {
  if (b === 0n) throw new RangeError("divides by zero");
  const quotient = a / b;
  return quotient + BigInt(a % b !== 0n && a < 0n === b < 0n);
};
const OPS = {
  add: (a, b) => a + b, sub: (a, b) => a - b, mul: (a, b) => a * b, ceil_div: ceilDiv, min: (a, b) => (a < b ? a : b), max: (a, b) => (a > b ? a : b),
};
const dimsOf = (expr) => (typeof expr === "number" ? [] : typeof expr === "string" ? [expr] : [...dimsOf(expr[1]), ...dimsOf(expr[2])]);
const evaluate = (expr, sizes) =>
  typeof expr === "number" ? BigInt(expr) : typeof expr === "string" ? sizes.get(expr) : OPS[expr[0]](evaluate(expr[1], sizes), evaluate(expr[2], sizes));
/** The size of an axis or a grid: none below zero where a dim in it is zero. */
const extent = (expr, sizes) => {
  const value = evaluate(expr, sizes);
  return value < 0n && dimsOf(expr).some((dim) => sizes.get(dim) === 0n) ? 0n : value;
};
const product = (sizes) => sizes.reduce((a, b) => a * b, 1n);

// ---- params

const float32Bits = (x) => new Uint32Array(new Float32Array([x]).buffer)[0];

/** The bits of x, rounded once to `fraction` bits of fraction and an exponent of `exponent` bits, ties to even. */
export function floatBits(x, exponent, fraction) {
  const sign = x < 0 || Object.is(x, -0) ? 1 : 0;
  const top = 2 ** exponent - 1;
  const pack = (e, f) => (sign * 2 ** (exponent + fraction)) + e * 2 ** fraction + f;
  if (Number.isNaN(x)) return pack(top, 2 ** (fraction - 1));
  const size = Math.abs(x);
  if (size === 0) return pack(0, 0);
  const bias = 2 ** (exponent - 1) - 1;
  let power = size === Infinity ? bias + 1 : Math.floor(Math.log2(size));
  if (size !== Infinity && size < 2 ** power) power -= 1;
  if (size !== Infinity && size >= 2 ** (power + 1)) power += 1;
  if (power > bias) return pack(top, 0);
  const least = Math.max(power, 1 - bias);
  const scaled = size / 2 ** (least - fraction); // exact: a power of two
  let rounded = Math.floor(scaled);
  const rest = scaled - rounded;
  if (rest > 0.5 || (rest === 0.5 && rounded % 2 === 1)) rounded += 1;
  // A number without the leading bit is subnormal, and one that was rounded up to the next power carries into the exponent.
  const bits = rounded >= 2 ** fraction ? (least + bias) * 2 ** fraction + (rounded - 2 ** fraction) : rounded;
  return bits >= top * 2 ** fraction ? pack(top, 0) : pack(0, 0) + bits;
}

const FLOATS = {
  f16: (view, at, x) => view.setUint16(at, floatBits(x, 5, 10), true),
  bf16: (view, at, x) => view.setUint16(at, floatBits(x, 8, 7), true),
  f32: (view, at, x) => view.setUint32(at, float32Bits(x), true),
};

/** The bytes of a param. Gives a sentence instead where the value does not fit. */
function encode(param, value) {
  const {bytes, range} = TYPES[param.scalar];
  const given = param.lanes === 1 ? [value] : value;
  if (!given || typeof given === "string" || given.length !== param.lanes) return `'${param.name}' is ${param.lanes} components of ${param.scalar}`;
  const data = new DataView(new ArrayBuffer(bytes * param.lanes));
  for (let k = 0; k < param.lanes; k++) {
    const one = given[k];
    if (range) {
      const whole = typeof one === "boolean" ? BigInt(one) : typeof one === "bigint" ? one : Number.isInteger(one) ? BigInt(one) : null;
      if (whole === null || whole < range[0] || whole > range[1]) return `'${param.name}' is ${param.type}, which ${String(one)} does not fit`;
      const bits = BigInt.asUintN(8 * bytes, whole);
      for (let byte = 0; byte < bytes; byte++) data.setUint8(k * bytes + byte, Number((bits >> BigInt(8 * byte)) & 255n));
    } else {
      if (typeof one !== "number") return `'${param.name}' is ${param.type}, a number, got ${typeof one}`;
      FLOATS[param.scalar](data, k * bytes, one);
    }
  }
  return new Uint8Array(data.buffer);
}

// ---- arguments

const wordsOf = (bytes) => Math.max(WORD, Math.ceil(bytes / WORD) * WORD);

/** The array and shape of an argument; a sentence where it is none of the type. */
function arrayOf(memory, value) {
  const {bytes, arrays} = TYPES[memory.scalar];
  const data = ArrayBuffer.isView(value) ? value : value && value.data;
  const buffer = value && value.buffer && value.shape && !ArrayBuffer.isView(value) ? value.buffer : null;
  if (!buffer && (!ArrayBuffer.isView(data) || !arrays.includes(data.constructor.name))) {
    const got = data ? data.constructor.name : typeof value;
    return `'${memory.name}' needs elements of ${memory.type} in ${arrays.join(" or ")}, got ${got}`;
  }
  const tail = memory.lanes === 1 ? [] : [memory.lanes];
  let shape = value.shape ? Array.from(value.shape, Number) : null;
  if (!shape) {
    if (memory.shape.length !== 1) return `'${memory.name}' has ${memory.shape.length} axes: give {data, shape}`;
    if (data.length % memory.lanes) return `'${memory.name}' needs ${memory.lanes} components for each ${memory.type}, got ${data.length} in all`;
    shape = [data.length / memory.lanes, ...tail];
  }
  if (shape.length === memory.shape.length && tail.length) shape = [...shape, ...tail];
  const fits = shape.length === memory.shape.length + tail.length && (!tail.length || shape[shape.length - 1] === memory.lanes);
  if (!fits || !shape.every((size) => Number.isInteger(size) && size >= 0)) return `'${memory.name}' needs ${memory.shape.length} axes, got shape [${shape}]`;
  const count = shape.reduce((a, b) => a * b, 1);
  if (data && !buffer && data.length !== count) return `'${memory.name}' has ${data.length} elements, and its shape [${shape}] ${count}`;
  if (buffer && buffer.size < wordsOf(count * bytes)) return `'${memory.name}' has ${buffer.size} bytes, and its shape [${shape}] needs ${wordsOf(count * bytes)}`;
  return {data, buffer, shape: shape.slice(0, memory.shape.length), bytes: count * bytes};
}

/** Sizes, shapes, params and arrays of arguments that fit. Throws BindingError with all that does not. */
export function fit(description, given) {
  const {name, dims, params, buffers} = description;
  const problems = [];
  const known = new Set([...dims, ...params.map((p) => p.name), ...buffers.map((b) => b.name)]);
  for (const key of Object.keys(given)) if (!known.has(key)) problems.push(`there is no argument '${key}'; expected ${[...known].join(", ") || "none"}`);
  const encoded = new Map();
  for (const param of params) {
    const bytes = Object.hasOwn(given, param.name) ? encode(param, given[param.name]) : `param '${param.name}' (${param.type}) is missing`;
    if (typeof bytes === "string") problems.push(bytes);
    else encoded.set(param.name, bytes);
  }
  const sizes = new Map();
  for (const dim of dims) {
    if (!Object.hasOwn(given, dim)) continue;
    const size = given[dim];
    if ((Number.isInteger(size) || typeof size === "bigint") && size >= 0 && BigInt(size) < LIMIT) sizes.set(dim, BigInt(size));
    else problems.push(`dim '${dim}' is a whole number from 0 to 2^32 - 1, got ${String(size)}`);
  }
  const arrays = new Map();
  for (const memory of buffers) {
    if (!Object.hasOwn(given, memory.name)) {
      if (memory.reads) problems.push(`buffer '${memory.name}' (${memory.type}) is missing`);
      continue;
    }
    const array = arrayOf(memory, given[memory.name]);
    if (typeof array === "string") {
      problems.push(array);
      continue;
    }
    arrays.set(memory.name, array);
    memory.shape.forEach((expr, axis) => {
      if (typeof expr !== "string") return;
      const size = BigInt(array.shape[axis]);
      if (!sizes.has(expr)) sizes.set(expr, size);
      else if (sizes.get(expr) !== size) problems.push(`dim '${expr}' is ${sizes.get(expr)}, but axis ${axis} of '${memory.name}' has ${size}`);
    });
  }
  if (!problems.length) for (const dim of dims) if (!sizes.has(dim)) problems.push(`dim '${dim}' is not the size of any given axis; give it by name`);
  if (problems.length) throw new BindingError(name, problems);
  const shapes = new Map();
  for (const memory of buffers) {
    const shape = memory.shape.map((expr) => sized(() => extent(expr, sizes), `an axis of '${memory.name}'`, problems));
    const array = arrays.get(memory.name);
    shape.forEach((want, axis) => {
      if (array && BigInt(array.shape[axis]) !== want) problems.push(`axis ${axis} of '${memory.name}' is ${want}, got ${array.shape[axis]}`);
    });
    if (product(shape) * BigInt(memory.lanes) >= LIMIT) problems.push(`'${memory.name}' has 2^32 elements or more`);
    shapes.set(memory.name, shape);
  }
  if (problems.length) throw new BindingError(name, problems);
  return {sizes, shapes, encoded, arrays};
}

/** A size that may be none: problems take the sentence, and it is 0. */
function sized(compute, what, problems) {
  try {
    const value = compute();
    if (value >= 0n) return value;
    problems.push(`${what} is ${value}, which is negative`);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    problems.push(`${what} ${error.message}`);
  }
  return 0n;
}

/** The workgroups of a step, and how many are dispatched for them: turns along z where there are too many along x. Throws BindingError. */
export function gridOf(description, step, sizes, most) {
  const problems = [];
  const grid = step.grid.extents.map((expr, axis) => {
    const value = sized(() => extent(expr, sizes), `the grid along ${"xyz"[axis]}`, problems);
    return Number(step.grid.over ? ceilDiv(value, BigInt(step.workgroup[axis])) : value);
  });
  const [x, y, z] = grid;
  const turns = Math.max(1, Math.ceil(x / most));
  if (y > most || turns * z > most) problems.push(`a grid of ${x} x ${y} x ${z} workgroups needs more than ${most} along y or z`);
  grid.forEach((count, axis) => {
    if (count * step.workgroup[axis] >= Number(LIMIT)) problems.push(`the grid along ${"xyz"[axis]} is ${count * step.workgroup[axis]} invocations; fewer than 2^32 are needed`);
  });
  if (problems.length) throw new BindingError(description.name, problems);
  return {grid, dispatched: [Math.ceil(x / turns), y, turns * z]};
}

/** The words of a step's block. */
export function blockOf(description, step, fitted, grid) {
  const words = new DataView(new ArrayBuffer(step.words * WORD));
  words.setUint32(HEADER.GROUPS_X * WORD, grid[0], true);
  words.setUint32(HEADER.GROUPS_Z * WORD, grid[2], true);
  const problems = [];
  for (const scalar of step.scalars) {
    if (scalar.param !== undefined) {
      for (const [at, bytes] of paramWords(scalar, fitted.encoded)) new Uint8Array(words.buffer).set(bytes, at);
      continue;
    }
    const size = grid.includes(0) ? 0n : sized(() => evaluate(scalar.expr, fitted.sizes), "a size used as a value", problems);
    if (size >= LIMIT) problems.push(`a size used as a value is ${size}, which is outside 0 to 2^32 - 1`);
    else words.setUint32(scalar.word * WORD, Number(size), true);
  }
  if (problems.length) throw new BindingError(description.name, problems);
  return new Uint8Array(words.buffer);
}

const paramWords = (scalar, encoded) => {
  const bytes = new Uint8Array(scalar.slot);
  bytes.set(encoded.get(scalar.param).subarray(scalar.byte, scalar.byte + scalar.bytes));
  return [[scalar.word * WORD, bytes]];
};

// ---- kernels and launches

const NEEDED = [
  "maxBufferSize", "maxStorageBufferBindingSize", "maxStorageBuffersPerShaderStage", "maxComputeWorkgroupStorageSize", "maxComputeInvocationsPerWorkgroup",
  "maxComputeWorkgroupSizeX", "maxComputeWorkgroupSizeY", "maxComputeWorkgroupSizeZ", "maxComputeWorkgroupsPerDimension",
];

/** A device with the adapter's own limits. Throws Unsupported where there is no WebGPU. */
export async function requestDevice() {
  const adapter = await globalThis.navigator?.gpu?.requestAdapter();
  if (!adapter) throw new Unsupported("there is no WebGPU here: another browser, or a graphics driver, may have it");
  return adapter.requestDevice({requiredLimits: Object.fromEntries(NEEDED.map((name) => [name, adapter.limits[name]]))});
}

function requireLimits(step, limits) {
  const [x, y, z] = step.workgroup;
  const wanted = {
    maxComputeInvocationsPerWorkgroup: x * y * z, maxComputeWorkgroupSizeX: x, maxComputeWorkgroupSizeY: y, maxComputeWorkgroupSizeZ: z,
    maxComputeWorkgroupStorageSize: step.workgroupBytes, maxStorageBuffersPerShaderStage: step.bindings.length + (step.tables ? 1 : 0),
  };
  const over = Object.entries(wanted).filter(([name, value]) => value > limits[name]);
  if (over.length) throw new Unsupported(over.map(([name, value]) => `${name} is ${limits[name]}, and the Program needs ${value}`).join("; "));
}

/** A loaded Program. Attributes: `device`, `description`. */
export class Kernel {
  constructor(device, description, loaded) {
    this.device = device;
    this.description = description;
    this.loaded = loaded;
  }

  /** Compiles a description for a device, or for a new one. Throws Unsupported, and what the browser's compiler says. */
  static async load(description, {device} = {}) {
    device ??= await requestDevice();
    const loaded = [];
    for (const step of description.steps) {
      requireLimits(step, device.limits);
      const module = device.createShaderModule({code: step.code});
      const kinds = ["uniform", ...step.bindings.map((b) => (b.writes ? "storage" : "read-only-storage")), ...(step.tables ? ["read-only-storage"] : [])];
      const layout = device.createBindGroupLayout({entries: kinds.map((type, binding) => ({binding, visibility: COMPUTE, buffer: {type}}))});
      const pipeline = await device.createComputePipelineAsync({
        layout: device.createPipelineLayout({bindGroupLayouts: [layout]}), compute: {module, entryPoint: step.entry},
      });
      let tables = null;
      if (step.tables) {
        const bytes = Uint8Array.from(atob(step.tables), (c) => c.charCodeAt(0));
        tables = device.createBuffer({size: wordsOf(bytes.length), usage: USAGE.STORAGE | USAGE.COPY_DST});
        device.queue.writeBuffer(tables, 0, bytes);
      }
      loaded.push({layout, pipeline, tables});
    }
    return new Kernel(device, description, loaded);
  }

  /** A launch over memory of its own, filled with what is given. Throws BindingError with every mismatch. */
  bind(given) {
    return new Launch(this, fit(this.description, given));
  }

  /** Runs once, and gives what is written, by name. Throws what `bind` throws. */
  async dispatch(given) {
    const launch = this.bind(given);
    try {
      launch.run();
      const names = this.description.buffers.filter((memory) => memory.writes).map((memory) => memory.name);
      const found = await Promise.all(names.map((name) => launch.read(name)));
      return Object.fromEntries(names.map((name, k) => [name, found[k]]));
    } finally {
      launch.destroy();
    }
  }
}

/** A bound launch. `buffers` has its memory by name, each {buffer, bytes, shape}. */
export class Launch {
  constructor(kernel, fitted) {
    const {device, description} = kernel;
    this.kernel = kernel;
    this.fitted = fitted;
    const most = device.limits.maxComputeWorkgroupsPerDimension;
    const plans = description.steps.map((step) => gridOf(description, step, fitted.sizes, most));
    const blocks = description.steps.map((step, k) => blockOf(description, step, fitted, plans[k].grid));
    this.owned = [];
    this.buffers = new Map();
    const problems = [];
    for (const memory of description.buffers) {
      const shape = fitted.shapes.get(memory.name);
      const bytes = Number(product(shape)) * memory.lanes * TYPES[memory.scalar].bytes;
      if (wordsOf(bytes) > device.limits.maxStorageBufferBindingSize) problems.push(`'${memory.name}' has ${bytes} bytes; the device binds ${device.limits.maxStorageBufferBindingSize}`);
    }
    if (problems.length) throw new BindingError(description.name, problems);
    for (const memory of description.buffers) {
      const array = fitted.arrays.get(memory.name);
      const shape = fitted.shapes.get(memory.name).map(Number);
      const bytes = shape.reduce((a, b) => a * b, 1) * memory.lanes * TYPES[memory.scalar].bytes;
      const buffer = array?.buffer ?? this.memory(bytes, USAGE.STORAGE | USAGE.COPY_SRC | USAGE.COPY_DST);
      if (array?.data && !array.buffer) this.fill(buffer, array.data);
      this.buffers.set(memory.name, {buffer, bytes, shape});
    }
    for (const [name, {expr, bytes}] of Object.entries(description.totals)) {
      const size = Number(extent(expr, fitted.sizes)) * bytes;
      this.buffers.set(name, {buffer: this.memory(size, USAGE.STORAGE), bytes: size, shape: []});
    }
    this.steps = description.steps.map((step, k) => this.bound(step, kernel.loaded[k], blocks[k], plans[k].dispatched));
  }

  memory(bytes, usage) {
    const made = this.kernel.device.createBuffer({size: Math.max(2 * WORD, wordsOf(bytes)), usage}); // code may have pairs of words for elements
    this.owned.push(made);
    return made;
  }

  fill(buffer, data) {
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    if (!bytes.length) return;
    const whole = bytes.length % WORD ? new Uint8Array(wordsOf(bytes.length)) : bytes;
    if (whole !== bytes) whole.set(bytes);
    this.kernel.device.queue.writeBuffer(buffer, 0, whole);
  }

  bound(step, {layout, pipeline, tables}, words, dispatched) {
    const {device} = this.kernel;
    const block = this.memory(words.length, USAGE.UNIFORM | USAGE.COPY_DST);
    device.queue.writeBuffer(block, 0, words);
    const held = step.bindings.map(({name}) => ({buffer: this.buffers.get(name).buffer, offset: 0, size: Math.max(2 * WORD, wordsOf(this.buffers.get(name).bytes))}));
    const resources = [{buffer: block}, ...held, ...(tables ? [{buffer: tables}] : [])];
    const group = device.createBindGroup({layout, entries: resources.map((resource, binding) => ({binding, resource}))});
    return {step, block, group, pipeline, dispatched};
  }

  /** Changes params. Throws BindingError for what does not fit; then nothing was changed. */
  set(params) {
    const {description, device} = this.kernel;
    const problems = [];
    const encoded = new Map();
    for (const [name, value] of Object.entries(params)) {
      const param = description.params.find((p) => p.name === name);
      const bytes = param ? encode(param, value) : `there is no param '${name}'`;
      if (typeof bytes === "string") problems.push(bytes);
      else encoded.set(name, bytes);
    }
    if (problems.length) throw new BindingError(description.name, problems);
    for (const {step, block} of this.steps) {
      for (const scalar of step.scalars.filter(({param}) => encoded.has(param))) {
        for (const [at, bytes] of paramWords(scalar, encoded)) device.queue.writeBuffer(block, at, bytes);
      }
    }
    return this;
  }

  /** Encodes the launch into a pass of the caller's. */
  encode(pass) {
    if (this.steps[this.steps.length - 1].dispatched.includes(0)) return;
    for (const {pipeline, group, dispatched} of this.steps) {
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, group);
      pass.dispatchWorkgroups(...dispatched);
    }
  }

  /** Submits the launch; does not wait. */
  run() {
    const {device} = this.kernel;
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    this.encode(pass);
    pass.end();
    device.queue.submit([encoder.finish()]);
  }

  /** A copy of a buffer, once all that was submitted before is done. */
  async read(name) {
    const {device, description} = this.kernel;
    const memory = description.buffers.find((b) => b.name === name);
    if (!memory) throw new BindingError(description.name, [`there is no buffer '${name}'`]);
    const {buffer, bytes} = this.buffers.get(name);
    const size = wordsOf(bytes);
    const staging = device.createBuffer({size, usage: USAGE.MAP_READ | USAGE.COPY_DST});
    const encoder = device.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, 0, staging, 0, size);
    device.queue.submit([encoder.finish()]);
    await staging.mapAsync(1);
    const copy = staging.getMappedRange().slice(0, bytes);
    staging.unmap();
    staging.destroy();
    const like = this.fitted.arrays.get(name)?.data?.constructor;
    return new (like ?? globalThis[TYPES[memory.scalar].arrays[0]])(copy);
  }

  /** Gives its memory back; what the caller gave as buffers stays. */
  destroy() {
    for (const buffer of this.owned) buffer.destroy();
    this.owned = [];
  }
}
