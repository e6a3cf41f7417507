/* A simulated NVML: a libnvidia-ml.so.1 without a GPU, whose answers are written in a file.
 *
 * The file (named by SIMULATED_GPU_STATE; see README.md) is read again whenever it has changed, so
 * the world changes between two calls. The layouts, symbols and numbers are those of NVIDIA's NVML
 * API reference and of its Python binding, nvidia-ml-py 12 and 13.
 *
 * One lock guards everything; no call waits while holding it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef SIMULATED_DIGEST
#define SIMULATED_DIGEST "built by hand"
#endif

#define EXPORT __attribute__((visibility("default")))
#define POLL_MS 10
#define NO_INSTANCE 0xFFFFFFFFu
#define NOT_AVAILABLE 0xFFFFFFFFFFFFFFFFull

/* Found by build() in the file, to know what it was made of. */
EXPORT const char simulated_nvml_digest[] = SIMULATED_DIGEST;

typedef int nvmlReturn_t;
typedef unsigned long long u64;
typedef struct handle *nvmlDevice_t;
typedef struct event_set *nvmlEventSet_t;

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
};

static const struct {
    int code;
    const char *name;
    const char *text;
} errors[] = {
    {0, "SUCCESS", "Success"},
    {1, "UNINITIALIZED", "Uninitialized"},
    {2, "INVALID_ARGUMENT", "Invalid Argument"},
    {3, "NOT_SUPPORTED", "Not Supported"},
    {4, "NO_PERMISSION", "Insufficient Permissions"},
    {5, "ALREADY_INITIALIZED", "Already Initialized"},
    {6, "NOT_FOUND", "Not Found"},
    {7, "INSUFFICIENT_SIZE", "Insufficient Size"},
    {8, "INSUFFICIENT_POWER", "Insufficient External Power"},
    {9, "DRIVER_NOT_LOADED", "Driver Not Loaded"},
    {10, "TIMEOUT", "Timeout"},
    {11, "IRQ_ISSUE", "Interrupt Request Issue"},
    {12, "LIBRARY_NOT_FOUND", "NVML Shared Library Not Found"},
    {13, "FUNCTION_NOT_FOUND", "Function Not Found"},
    {14, "CORRUPTED_INFOROM", "Corrupted infoROM"},
    {15, "GPU_IS_LOST", "GPU is lost"},
    {16, "RESET_REQUIRED", "GPU requires reset"},
    {17, "OPERATING_SYSTEM", "The operating system has blocked the request"},
    {18, "LIB_RM_VERSION_MISMATCH", "Driver/library version mismatch"},
    {19, "IN_USE", "In use by another client"},
    {20, "MEMORY", "Insufficient Memory"},
    {21, "NO_DATA", "No data"},
    {23, "INSUFFICIENT_RESOURCES", "Insufficient Resources"},
    {25, "ARGUMENT_VERSION_MISMATCH", "Argument version mismatch"},
    {27, "NOT_READY", "Not ready"},
    {28, "GPU_NOT_FOUND", "GPU not found"},
    {29, "INVALID_STATE", "Invalid state"},
    {999, "UNKNOWN", "Unknown Error"},
};
#define ERRORS (sizeof errors / sizeof *errors)

/* ------------------------------------------------------------------ the state and its file */

enum kind { DRIVER, GPU, NVLINK, MIG, PROCESS, EVENT, KINDS };
static const char *const kind_names[KINDS] = {"driver", "gpu", "nvlink", "mig", "process", "event"};

struct entry {
    const char *key, *value;
};

struct section {
    enum kind kind;
    size_t owner; /* index of the GPU above it */
    struct entry *entries;
    size_t count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    char path[4096];
    struct stat file;
    int known;  /* path and file are those of the last attempt */
    int usable; /* and it was read */
    char *text;
    struct section *sections;
    size_t count;
} state;

static void forget_state(void)
{
    for (size_t i = 0; i < state.count; i++)
        free(state.sections[i].entries);
    free(state.sections);
    free(state.text);
    state.sections = NULL;
    state.text = NULL;
    state.count = 0;
    state.usable = 0;
}

static int complain(const char *what, int line)
{
    fprintf(stderr, "simulated NVML: %s, line %d: %s\n", state.path, line, what);
    return 0;
}

static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    for (char *end = text + strlen(text); end > text && strchr(" \t\r", end[-1]); *--end = '\0')
        ;
    return text;
}

static int add_section(const char *name, int line)
{
    struct section *grown, new = {.kind = KINDS};
    for (int kind = 0; kind < KINDS; kind++)
        if (!strcmp(name, kind_names[kind]))
            new.kind = kind;
    if (new.kind == KINDS)
        return complain("an unknown section", line);
    if (new.kind == NVLINK || new.kind == MIG || new.kind == PROCESS) {
        for (new.owner = state.count; new.owner > 0; new.owner--)
            if (state.sections[new.owner - 1].kind == GPU)
                break;
        if (new.owner-- == 0)
            return complain("a section of a GPU before any GPU", line);
    }
    grown = realloc(state.sections, (state.count + 1) * sizeof *grown);
    if (!grown)
        return complain("out of memory", line);
    state.sections = grown;
    state.sections[state.count++] = new;
    return 1;
}

static int add_entry(char *text, int line)
{
    char *equals = strchr(text, '=');
    struct section *section;
    struct entry *grown;
    if (!equals)
        return complain("neither `[section]` nor `key = value`", line);
    if (!state.count)
        return complain("a value before any section", line);
    *equals = '\0';
    section = &state.sections[state.count - 1];
    grown = realloc(section->entries, (section->count + 1) * sizeof *grown);
    if (!grown)
        return complain("out of memory", line);
    section->entries = grown;
    section->entries[section->count++] = (struct entry){trim(text), trim(equals + 1)};
    return 1;
}

static int parse_state(void)
{
    int number = 0;
    char *next = state.text;
    while (next) {
        char *line = strsep(&next, "\n");
        size_t length;
        number++;
        line = trim(line);
        length = strlen(line);
        if (!length || *line == '#')
            continue;
        if (*line == '[' && line[length - 1] == ']') {
            line[length - 1] = '\0';
            if (!add_section(line + 1, number))
                return 0;
        } else if (!add_entry(line, number)) {
            return 0;
        }
    }
    return 1;
}

static int read_state(int file, size_t size)
{
    size_t done = 0;
    state.text = malloc(size + 1);
    while (state.text && done < size) {
        ssize_t got = read(file, state.text + done, size - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return 0;
        done += (size_t)got;
    }
    if (!state.text)
        return 0;
    state.text[size] = '\0';
    return parse_state();
}

/* Take up what the file says now. Without a usable file nothing hangs and nothing works. */
static void refresh(void)
{
    const char *path = getenv("SIMULATED_GPU_STATE");
    struct stat now;
    int file;
    if (!path || strlen(path) >= sizeof state.path || stat(path, &now)) {
        forget_state();
        state.known = 0;
        return;
    }
    if (state.known && !strcmp(path, state.path) && now.st_ino == state.file.st_ino &&
        now.st_dev == state.file.st_dev && now.st_size == state.file.st_size &&
        now.st_mtim.tv_sec == state.file.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == state.file.st_mtim.tv_nsec &&
        now.st_ctim.tv_sec == state.file.st_ctim.tv_sec &&
        now.st_ctim.tv_nsec == state.file.st_ctim.tv_nsec)
        return;
    forget_state();
    state.known = 0;
    strcpy(state.path, path);
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    if (!fstat(file, &now)) {
        state.usable = read_state(file, (size_t)now.st_size);
        state.file = now;
        state.known = 1;
    }
    close(file);
}

static const char *find(const struct section *section, const char *key)
{
    for (size_t i = 0; i < section->count; i++)
        if (!strcmp(section->entries[i].key, key))
            return section->entries[i].value;
    return NULL;
}

/* A value that the state does not give is one that the device does not support. */
static nvmlReturn_t number(const struct section *section, const char *key, u64 *out)
{
    const char *text = find(section, key);
    char *end;
    if (!text)
        return NVML_ERROR_NOT_SUPPORTED;
    errno = 0;
    *out = strtoull(text, &end, 0);
    if (errno || end == text || *end || *text == '-') {
        fprintf(stderr, "simulated NVML: %s: not a number: %s = %s\n", state.path, key, text);
        return NVML_ERROR_UNKNOWN;
    }
    return NVML_SUCCESS;
}

static u64 number_or(const struct section *section, const char *key, u64 otherwise)
{
    u64 value;
    return number(section, key, &value) ? otherwise : value;
}

static const struct section *driver_section(void)
{
    static const struct section none = {.kind = DRIVER};
    for (size_t i = 0; i < state.count; i++)
        if (state.sections[i].kind == DRIVER)
            return &state.sections[i];
    return &none;
}

/* The `index`-th section of a kind: of the GPU `owner`, or of all. */
static const struct section *nth(enum kind kind, const struct section *owner, u64 index)
{
    for (size_t i = 0; i < state.count; i++) {
        const struct section *section = &state.sections[i];
        if (section->kind == kind && (!owner || &state.sections[section->owner] == owner))
            if (index-- == 0)
                return section;
    }
    return NULL;
}

static const struct section *by_uuid(enum kind kind, const char *uuid)
{
    const struct section *section;
    for (u64 i = 0; (section = nth(kind, NULL, i)); i++) {
        const char *own = find(section, "uuid");
        if (own && !strcmp(own, uuid))
            return section;
    }
    return NULL;
}

static const struct section *physical(const struct section *section)
{
    return section->kind == MIG ? &state.sections[section->owner] : section;
}

static nvmlReturn_t error_named(const char *name, size_t length)
{
    for (size_t i = 0; i < ERRORS; i++)
        if (strlen(errors[i].name) == length && !strncmp(errors[i].name, name, length))
            return errors[i].code;
    fprintf(stderr, "simulated NVML: %s: no such error: %.*s\n", state.path, (int)length, name);
    return NVML_ERROR_UNKNOWN;
}

/* What `errors = FUNCTION:ERROR …` of a section says of a function. */
static nvmlReturn_t error_of(const struct section *section, const char *function, int or_any)
{
    const char *word = find(section, "errors");
    while (word && *(word += strspn(word, " \t"))) {
        size_t length = strcspn(word, " \t"), name = strcspn(word, ": \t");
        if (name < length && ((name == strlen(function) && !strncmp(word, function, name)) ||
                              (or_any && name == 1 && *word == '*')))
            return error_named(word + name + 1, length - name - 1);
        word += length;
    }
    return NVML_SUCCESS;
}

static int hangs(const struct section *section, const char *function)
{
    const char *word = section ? find(section, "hang") : NULL;
    while (word && *(word += strspn(word, " \t"))) {
        size_t length = strcspn(word, " \t");
        if ((length == 1 && *word == '*') ||
            (length == strlen(function) && !strncmp(word, function, length)))
            return 1;
        word += length;
    }
    return 0;
}

/* ------------------------------------------------------- initialisation, handles, every call */

static unsigned references; /* nvmlInit calls not yet matched by nvmlShutdown */
static unsigned epoch;      /* one for each time it became initialised */
static u64 generation;      /* of the driver, at that time */

/* Never freed: whether a pointer is a handle is decided by looking it up here. */
struct handle {
    struct handle *next;
    unsigned epoch;
    enum kind kind;
    char uuid[96];
};
static struct handle *handles;

static u64 now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (u64)now.tv_sec * 1000000000u + (u64)now.tv_nsec;
}

static u64 monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (u64)now.tv_sec * 1000u + (u64)now.tv_nsec / 1000000u;
}

static void pause_unlocked(void)
{
    const struct timespec tick = {0, POLL_MS * 1000000L};
    pthread_mutex_unlock(&lock);
    nanosleep(&tick, NULL);
    pthread_mutex_lock(&lock);
    refresh();
}

static nvmlReturn_t leave(nvmlReturn_t status)
{
    pthread_mutex_unlock(&lock);
    return status;
}

static int is_handle(nvmlDevice_t device)
{
    for (struct handle *handle = handles; handle; handle = handle->next)
        if (handle == device)
            return 1;
    return 0;
}

static nvmlReturn_t handle_for(const struct section *section, nvmlDevice_t *device)
{
    const char *uuid = find(section, "uuid");
    struct handle *handle;
    if (!uuid || strlen(uuid) >= sizeof handle->uuid)
        return NVML_ERROR_UNKNOWN;
    for (handle = handles; handle; handle = handle->next)
        if (handle->epoch == epoch && !strcmp(handle->uuid, uuid))
            break;
    if (!handle) {
        handle = calloc(1, sizeof *handle);
        if (!handle)
            return NVML_ERROR_MEMORY;
        handle->epoch = epoch;
        handle->kind = section->kind;
        strcpy(handle->uuid, uuid);
        handle->next = handles;
        handles = handle;
    }
    *device = handle;
    return NVML_SUCCESS;
}

static void record_call(const char *function)
{
    const char *path = find(driver_section(), "calls_file");
    char line[128];
    int file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;
    if (file < 0)
        return;
    if (write(file, line, (size_t)snprintf(line, sizeof line, "%s\n", function)) < 0)
        fprintf(stderr, "simulated NVML: %s: %s\n", path, strerror(errno));
    close(file);
}

static nvmlReturn_t section_of(nvmlDevice_t device, const struct section **section)
{
    if (!is_handle(device))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (device->epoch != epoch)
        return NVML_ERROR_UNINITIALIZED;
    *section = by_uuid(device->kind, device->uuid);
    if (!*section)
        return device->kind == MIG ? NVML_ERROR_NOT_FOUND : NVML_ERROR_GPU_IS_LOST;
    return NVML_SUCCESS;
}

static nvmlReturn_t health(const struct section *section, const char *function)
{
    if (number_or(physical(section), "lost", 0))
        return NVML_ERROR_GPU_IS_LOST;
    return error_of(section, function, 1);
}

static int hangs_for(nvmlDevice_t device, const char *function)
{
    const struct section *section = NULL;
    if (hangs(driver_section(), function))
        return 1;
    return device && !section_of(device, &section) &&
           (hangs(section, function) || hangs(physical(section), function));
}

static nvmlReturn_t initialised(const char *function)
{
    if (!references || number_or(driver_section(), "generation", 0) != generation)
        return NVML_ERROR_UNINITIALIZED;
    return state.usable ? error_of(driver_section(), function, 1) : NVML_ERROR_UNKNOWN;
}

/* What every call begins with. It returns SUCCESS with the lock held. */
static nvmlReturn_t enter(const char *function)
{
    nvmlReturn_t status;
    pthread_mutex_lock(&lock);
    refresh();
    record_call(function);
    while (hangs_for(NULL, function))
        pause_unlocked();
    status = initialised(function);
    return status ? leave(status) : status;
}

static nvmlReturn_t enter_device(const char *function, nvmlDevice_t device, int mig_too,
                                 const struct section **section)
{
    nvmlReturn_t status;
    pthread_mutex_lock(&lock);
    refresh();
    record_call(function);
    while (hangs_for(device, function))
        pause_unlocked();
    status = initialised(function);
    if (!status)
        status = section_of(device, section);
    if (!status)
        status = health(*section, function);
    if (!status && (*section)->kind == MIG && !mig_too)
        status = NVML_ERROR_NOT_SUPPORTED;
    return status ? leave(status) : status;
}

static nvmlReturn_t device_number(const char *function, nvmlDevice_t device, const char *key,
                                  u64 *out)
{
    const struct section *gpu;
    nvmlReturn_t status = enter_device(function, device, 0, &gpu);
    if (status)
        return status;
    return leave(out ? number(gpu, key, out) : NVML_ERROR_INVALID_ARGUMENT);
}

static nvmlReturn_t device_uint(const char *function, nvmlDevice_t device, const char *key,
                                unsigned *out)
{
    u64 value;
    nvmlReturn_t status = device_number(function, device, key, &value);
    if (!status && !out)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!status)
        *out = (unsigned)value;
    return status;
}

static nvmlReturn_t copy(const struct section *section, const char *key, char *out, unsigned length)
{
    const char *text = find(section, key);
    if (!text)
        return NVML_ERROR_NOT_SUPPORTED;
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

static nvmlReturn_t device_text(const char *function, nvmlDevice_t device, const char *key,
                                char *out, unsigned length)
{
    const struct section *section;
    nvmlReturn_t status = enter_device(function, device, 1, &section);
    return status ? status : leave(copy(section, key, out, length));
}

/* -------------------------------------------------------------------------- the whole library */

static nvmlReturn_t initialise(const char *function)
{
    const char *refused;
    nvmlReturn_t status;
    pthread_mutex_lock(&lock);
    refresh();
    record_call(function);
    while (hangs_for(NULL, function))
        pause_unlocked();
    if (references) { /* as in NVML: counted, and nothing is opened again */
        references++;
        return leave(NVML_SUCCESS);
    }
    if (!state.usable)
        return leave(state.known ? NVML_ERROR_UNKNOWN : NVML_ERROR_DRIVER_NOT_LOADED);
    refused = find(driver_section(), "init_error");
    if (refused)
        return leave(error_named(refused, strlen(refused)));
    status = error_of(driver_section(), function, 1);
    if (status)
        return leave(status);
    references = 1;
    epoch++;
    generation = number_or(driver_section(), "generation", 0);
    return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlInit_v2(void) { return initialise(__func__); }

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return initialise(__func__);
}

EXPORT nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&lock);
    refresh();
    record_call(__func__);
    while (hangs_for(NULL, __func__))
        pause_unlocked();
    if (!references)
        return leave(NVML_ERROR_UNINITIALIZED);
    references--;
    return leave(NVML_SUCCESS);
}

EXPORT const char *nvmlErrorString(nvmlReturn_t code)
{
    for (size_t i = 0; i < ERRORS; i++)
        if (errors[i].code == code)
            return errors[i].text;
    return "Unknown Error";
}

static nvmlReturn_t driver_text(const char *function, const char *key, char *out, unsigned length)
{
    nvmlReturn_t status = enter(function);
    return status ? status : leave(copy(driver_section(), key, out, length));
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned length)
{
    return driver_text(__func__, "driver_version", out, length);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *out, unsigned length)
{
    return driver_text(__func__, "nvml_version", out, length);
}

static nvmlReturn_t cuda_version(const char *function, int *out)
{
    u64 value;
    nvmlReturn_t status = enter(function);
    if (status)
        return status;
    status = out ? number(driver_section(), "cuda_version", &value) : NVML_ERROR_INVALID_ARGUMENT;
    if (!status)
        *out = (int)value;
    return leave(status);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *out) { return cuda_version(__func__, out); }

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *out)
{
    return cuda_version(__func__, out);
}

/* ------------------------------------------------------------------------ devices and identity */

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *out)
{
    nvmlReturn_t status = enter(__func__);
    if (status)
        return status;
    if (!out)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    for (*out = 0; nth(GPU, NULL, *out); ++*out)
        ;
    return leave(NVML_SUCCESS);
}

/* Ends a function that looks a device up: `section` is what it found, or NULL. */
static nvmlReturn_t found(const char *function, const struct section *section,
                          nvmlReturn_t otherwise, nvmlDevice_t *out)
{
    nvmlReturn_t status;
    if (!section || !out)
        return leave(out ? otherwise : NVML_ERROR_INVALID_ARGUMENT);
    while (hangs(section, function)) {
        char uuid[96];
        enum kind kind = section->kind;
        if (copy(section, "uuid", uuid, sizeof uuid))
            return leave(NVML_ERROR_UNKNOWN);
        pause_unlocked();
        section = by_uuid(kind, uuid);
        if (!section)
            return leave(NVML_ERROR_GPU_IS_LOST);
    }
    status = health(section, function);
    return leave(status ? status : handle_for(section, out));
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *out)
{
    nvmlReturn_t status = enter(__func__);
    return status ? status
                  : found(__func__, nth(GPU, NULL, index), NVML_ERROR_INVALID_ARGUMENT, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out)
{
    const struct section *section = NULL;
    nvmlReturn_t status = enter(__func__);
    if (status)
        return status;
    if (uuid && !(section = by_uuid(GPU, uuid)))
        section = by_uuid(MIG, uuid);
    return found(__func__, section, NVML_ERROR_NOT_FOUND, out);
}

struct pci {
    unsigned domain, bus, device;
};

static int parse_pci(const char *text, struct pci *out)
{
    return text && sscanf(text, "%x:%x:%x", &out->domain, &out->bus, &out->device) == 3;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *out)
{
    const struct section *section;
    struct pci wanted, own;
    nvmlReturn_t status = enter(__func__);
    if (status)
        return status;
    if (!parse_pci(text, &wanted))
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    for (u64 i = 0; (section = nth(GPU, NULL, i)); i++)
        if (parse_pci(find(section, "pci_bus_id"), &own) && own.domain == wanted.domain &&
            own.bus == wanted.bus && own.device == wanted.device)
            break;
    return found(__func__, section, NVML_ERROR_NOT_FOUND, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *out, unsigned length)
{
    return device_text(__func__, device, "uuid", out, length);
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *out, unsigned length)
{
    return device_text(__func__, device, "name", out, length);
}

EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *out, unsigned length)
{
    return device_text(__func__, device, "serial", out, length);
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *out)
{
    return device_uint(__func__, device, "minor", out);
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *out)
{
    const struct section *gpu, *other;
    nvmlReturn_t status = enter_device(__func__, device, 0, &gpu);
    if (status)
        return status;
    if (!out)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    for (*out = 0; (other = nth(GPU, NULL, *out)) && other != gpu; ++*out)
        ;
    return leave(NVML_SUCCESS);
}

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *out)
{
    const struct section *gpu;
    struct pci pci;
    nvmlReturn_t status = enter_device(__func__, device, 0, &gpu);
    if (status)
        return status;
    if (!out)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    if (!parse_pci(find(gpu, "pci_bus_id"), &pci))
        return leave(NVML_ERROR_NOT_SUPPORTED);
    *out = (nvmlPciInfo_t){.domain = pci.domain, .bus = pci.bus, .device = pci.device};
    snprintf(out->busId, sizeof out->busId, "%08X:%02X:%02X.0", pci.domain, pci.bus, pci.device);
    snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%04X:%02X:%02X.0", pci.domain & 0xffff,
             pci.bus & 0xff, pci.device & 0xff);
    return leave(NVML_SUCCESS);
}

/* ------------------------------------------------------------ memory, use, temperature, power */

struct memory {
    u64 total, reserved, used, free;
};

static nvmlReturn_t memory_of(const struct section *section, struct memory *out)
{
    nvmlReturn_t status = number(section, "memory_total", &out->total);
    if (!status)
        status = number(section, "memory_used", &out->used);
    if (status)
        return status;
    out->reserved = number_or(section, "memory_reserved", 0);
    out->free = out->total - out->reserved - out->used;
    if (out->free <= out->total)
        return NVML_SUCCESS;
    fprintf(stderr, "simulated NVML: %s: more memory reserved and used than there is\n", state.path);
    return NVML_ERROR_UNKNOWN;
}

typedef struct {
    u64 total, free, used;
} nvmlMemory_t;

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out)
{
    const struct section *section;
    struct memory memory;
    nvmlReturn_t status = enter_device(__func__, device, 1, &section);
    if (status)
        return status;
    status = out ? memory_of(section, &memory) : NVML_ERROR_INVALID_ARGUMENT;
    if (!status)
        *out = (nvmlMemory_t){memory.total, memory.free, memory.reserved + memory.used};
    return leave(status);
}

typedef struct {
    unsigned version;
    u64 total, reserved, free, used;
} nvmlMemory_v2_t;

#define VERSIONED(type, version) (unsigned)(sizeof(type) | ((version) << 24))

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out)
{
    const struct section *section;
    struct memory memory;
    nvmlReturn_t status = enter_device(__func__, device, 1, &section);
    if (status)
        return status;
    if (!out)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    if (out->version != VERSIONED(nvmlMemory_v2_t, 2))
        return leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    status = find(section, "memory_reserved") ? memory_of(section, &memory)
                                              : NVML_ERROR_NOT_SUPPORTED;
    if (!status)
        *out = (nvmlMemory_v2_t){out->version, memory.total, memory.reserved, memory.free,
                                 memory.used};
    return leave(status);
}

typedef struct {
    unsigned gpu, memory;
} nvmlUtilization_t;

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out)
{
    const struct section *section;
    u64 gpu = 0, memory = 0;
    nvmlReturn_t status = enter_device(__func__, device, 0, &section);
    if (status)
        return status;
    status = out ? number(section, "utilization_gpu", &gpu) : NVML_ERROR_INVALID_ARGUMENT;
    if (!status)
        status = number(section, "utilization_memory", &memory);
    if (!status)
        *out = (nvmlUtilization_t){(unsigned)gpu, (unsigned)memory};
    return leave(status);
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned *out)
{
    return device_uint(__func__, device, sensor == 0 ? "temperature" : "no such sensor", out);
}

typedef struct {
    unsigned version, sensorType;
    int temperature;
} nvmlTemperature_v1_t;

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_v1_t *out)
{
    u64 value;
    const char *key = out && out->sensorType == 0 ? "temperature" : "no such sensor";
    nvmlReturn_t status = device_number(__func__, device, key, &value);
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!status && out->version != VERSIONED(nvmlTemperature_v1_t, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (!status)
        out->temperature = (int)value;
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned threshold,
                                                      unsigned *out)
{
    static const char *const keys[] = {"temperature_shutdown", "temperature_slowdown",
                                       "temperature_memory_max", "temperature_gpu_max"};
    return device_uint(__func__, device, threshold < 4 ? keys[threshold] : "no such threshold",
                       out);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *out)
{
    return device_uint(__func__, device, "power_mw", out);
}

EXPORT nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *out)
{
    return device_uint(__func__, device, "power_limit_mw", out);
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, u64 *out)
{
    return device_number(__func__, device, "energy_mj", out);
}

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned type, unsigned *out)
{
    static const char *const keys[] = {"clock_graphics_mhz", "clock_sm_mhz", "clock_memory_mhz",
                                       "clock_video_mhz"};
    return device_uint(__func__, device, type < 4 ? keys[type] : "no such clock", out);
}

EXPORT nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, unsigned *out)
{
    return device_uint(__func__, device, "performance_state", out);
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, u64 *out)
{
    return device_number(__func__, device, "clock_reasons", out);
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, u64 *out)
{
    return device_number(__func__, device, "clock_reasons", out);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device, u64 *out)
{
    return device_number(__func__, device, "clock_reasons_supported", out);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device, u64 *out)
{
    return device_number(__func__, device, "clock_reasons_supported", out);
}

/* ----------------------------------------------------------- memory errors, PCIe, NVLink, modes */

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *now, unsigned *pending)
{
    const struct section *gpu;
    u64 value, later;
    nvmlReturn_t status = enter_device(__func__, device, 0, &gpu);
    if (status)
        return status;
    status = now && pending ? number(gpu, "ecc_mode", &value) : NVML_ERROR_INVALID_ARGUMENT;
    if (!status) {
        later = number_or(gpu, "ecc_mode_pending", value);
        *now = (unsigned)value;
        *pending = (unsigned)later;
    }
    return leave(status);
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned type,
                                                unsigned counter, u64 *out)
{
    static const char *const keys[2][2] = {
        {"ecc_volatile_corrected", "ecc_volatile_uncorrected"},
        {"ecc_aggregate_corrected", "ecc_aggregate_uncorrected"},
    };
    return device_number(__func__, device,
                         type < 2 && counter < 2 ? keys[counter][type] : "no such counter", out);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned cause, unsigned *count,
                                              u64 *addresses)
{
    static const char *const keys[] = {"retired_single", "retired_double"};
    const struct section *gpu;
    u64 pages;
    unsigned room;
    nvmlReturn_t status = enter_device(__func__, device, 0, &gpu);
    if (status)
        return status;
    status = cause < 2 && count ? number(gpu, keys[cause], &pages) : NVML_ERROR_INVALID_ARGUMENT;
    if (status)
        return leave(status);
    room = *count;
    *count = (unsigned)pages;
    if (pages && (!addresses || room < pages))
        return leave(NVML_ERROR_INSUFFICIENT_SIZE);
    for (u64 i = 0; i < pages; i++)
        addresses[i] = (i + 1) << 16;
    return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, unsigned *out)
{
    return device_uint(__func__, device, "retired_pending", out);
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *correctable,
                                              unsigned *uncorrectable, unsigned *pending,
                                              unsigned *failed)
{
    static const char *const keys[] = {"remapped_correctable", "remapped_uncorrectable",
                                       "remap_pending", "remap_failed"};
    unsigned *const outs[] = {correctable, uncorrectable, pending, failed};
    const struct section *gpu;
    u64 values[4];
    nvmlReturn_t status = enter_device(__func__, device, 0, &gpu);
    if (status)
        return status;
    for (int i = 0; i < 4 && !status; i++)
        status = outs[i] ? number(gpu, keys[i], &values[i]) : NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < 4 && !status; i++)
        *outs[i] = (unsigned)values[i];
    return leave(status);
}

EXPORT nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned *out)
{
    return device_uint(__func__, device, "pcie_replays", out);
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned *out)
{
    return device_uint(__func__, device, "pcie_generation", out);
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned *out)
{
    return device_uint(__func__, device, "pcie_width", out);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned *out)
{
    return device_uint(__func__, device, "pcie_max_generation", out);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t device, unsigned *out)
{
    return device_uint(__func__, device, "pcie_gpu_max_generation", out);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned *out)
{
    return device_uint(__func__, device, "pcie_max_width", out);
}

/* A value of one link; a GPU without any has no NVLink. */
static nvmlReturn_t link_number(const struct section *gpu, u64 link, const char *key, u64 *out)
{
    const struct section *section = nth(NVLINK, gpu, link);
    if (!nth(NVLINK, gpu, 0))
        return NVML_ERROR_NOT_SUPPORTED;
    return section && key ? number(section, key, out) : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t device_link(const char *function, nvmlDevice_t device, unsigned link,
                                const char *key, u64 *out)
{
    const struct section *gpu;
    nvmlReturn_t status = enter_device(function, device, 0, &gpu);
    if (status)
        return status;
    return leave(out ? link_number(gpu, link, key, out) : NVML_ERROR_INVALID_ARGUMENT);
}

static nvmlReturn_t device_link_uint(const char *function, nvmlDevice_t device, unsigned link,
                                     const char *key, unsigned *out)
{
    u64 value;
    nvmlReturn_t status = device_link(function, device, link, key, out ? &value : NULL);
    if (!status)
        *out = (unsigned)value;
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *out)
{
    return device_link_uint(__func__, device, link, "up", out);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned link, unsigned *out)
{
    return device_link_uint(__func__, device, link, "version", out);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned link,
                                                    unsigned counter, u64 *out)
{
    static const char *const keys[] = {"replay", "recovery", "crc_flit", "crc_data", "ecc_data"};
    return device_link(__func__, device, link, counter < 5 ? keys[counter] : NULL, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned *out)
{
    return device_uint(__func__, device, "compute_mode", out);
}

EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned *out)
{
    return device_uint(__func__, device, "persistence_mode", out);
}

/* ------------------------------------------------------------------------------- field values */

enum { UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3 };

typedef struct {
    unsigned fieldId, scopeId;
    long long timestamp, latencyUsec;
    unsigned valueType;
    nvmlReturn_t nvmlReturn;
    union {
        double dVal;
        unsigned uiVal;
        u64 ullVal;
    } value;
} nvmlFieldValue_t;

static const struct {
    unsigned id, type;
    const char *key;
} device_fields[] = {
    {1, UNSIGNED_INT, "ecc_mode"},
    {2, UNSIGNED_INT, "ecc_mode_pending"},
    {3, UNSIGNED_LONG_LONG, "ecc_volatile_corrected"},
    {4, UNSIGNED_LONG_LONG, "ecc_volatile_uncorrected"},
    {5, UNSIGNED_LONG_LONG, "ecc_aggregate_corrected"},
    {6, UNSIGNED_LONG_LONG, "ecc_aggregate_uncorrected"},
    {29, UNSIGNED_INT, "retired_single"},
    {30, UNSIGNED_INT, "retired_double"},
    {31, UNSIGNED_INT, "retired_pending"},
    {82, UNSIGNED_INT, "temperature_memory"},
    {83, UNSIGNED_LONG_LONG, "energy_mj"},
    {94, UNSIGNED_INT, "pcie_replays"},
    {142, UNSIGNED_INT, "remapped_correctable"},
    {143, UNSIGNED_INT, "remapped_uncorrectable"},
    {144, UNSIGNED_INT, "remap_pending"},
    {145, UNSIGNED_INT, "remap_failed"},
    {185, UNSIGNED_INT, "power_mw"},
    {186, UNSIGNED_INT, "power_mw"},
    {190, UNSIGNED_INT, "power_limit_mw"},
};

/* Fields whose number says the link: links 0 to 5, sometimes 6 to 11, sometimes a total. */
static const struct {
    unsigned first, more, total;
    const char *key;
} link_fields[] = {
    {32, 96, 38, "crc_flit"},   {39, 102, 45, "crc_data"},   {46, 108, 52, "replay"},
    {53, 114, 59, "recovery"}, {148, 154, 160, "ecc_data"},
};

static nvmlReturn_t link_total(const struct section *gpu, const char *key, u64 *out)
{
    nvmlReturn_t status = NVML_ERROR_NOT_SUPPORTED;
    const struct section *link;
    u64 value;
    *out = 0;
    for (u64 i = 0; (link = nth(NVLINK, gpu, i)); i++)
        if (!number(link, key, &value)) {
            *out += value;
            status = NVML_SUCCESS;
        }
    return status;
}

static nvmlReturn_t link_field(const struct section *gpu, unsigned id, unsigned scope, u64 *out)
{
    switch (id) {
    case 91: /* how many links */
        for (*out = 0; nth(NVLINK, gpu, *out); ++*out)
            ;
        return *out ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    case 161:
        return link_number(gpu, scope, "replay", out);
    case 162:
        return link_number(gpu, scope, "recovery", out);
    case 163:
        return link_number(gpu, scope, "crc_flit", out);
    case 165:
        return link_number(gpu, scope, "up", out);
    case 166:
        return link_number(gpu, scope, "version", out);
    }
    for (size_t i = 0; i < sizeof link_fields / sizeof *link_fields; i++) {
        if (id == link_fields[i].total)
            return link_total(gpu, link_fields[i].key, out);
        if (id >= link_fields[i].first && id < link_fields[i].first + 6)
            return link_number(gpu, id - link_fields[i].first, link_fields[i].key, out);
        if (id >= link_fields[i].more && id < link_fields[i].more + 6)
            return link_number(gpu, id - link_fields[i].more + 6, link_fields[i].key, out);
    }
    return NVML_ERROR_NOT_SUPPORTED;
}

static void answer_field(const struct section *gpu, const char *function, nvmlFieldValue_t *field)
{
    char name[64];
    u64 value = 0;
    field->timestamp = (long long)(now_ns() / 1000);
    field->latencyUsec = 0;
    field->valueType = UNSIGNED_LONG_LONG;
    field->value.ullVal = 0;
    snprintf(name, sizeof name, "%s/%u", function, field->fieldId);
    field->nvmlReturn = error_of(gpu, name, 0);
    if (field->nvmlReturn)
        return;
    snprintf(name, sizeof name, "field/%u/%u", field->fieldId, field->scopeId);
    if (find(gpu, name)) {
        field->nvmlReturn = number(gpu, name, &value);
        field->value.ullVal = value;
        return;
    }
    for (size_t i = 0; i < sizeof device_fields / sizeof *device_fields; i++)
        if (device_fields[i].id == field->fieldId) {
            field->nvmlReturn = number(gpu, device_fields[i].key, &value);
            field->valueType = device_fields[i].type;
            if (field->valueType == UNSIGNED_INT)
                field->value.uiVal = (unsigned)value;
            else
                field->value.ullVal = value;
            return;
        }
    field->nvmlReturn = link_field(gpu, field->fieldId, field->scopeId, &value);
    field->value.ullVal = value;
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count,
                                             nvmlFieldValue_t *fields)
{
    const struct section *gpu;
    nvmlReturn_t status = enter_device(__func__, device, 0, &gpu);
    if (status)
        return status;
    if (count < 1 || !fields)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < count; i++)
        answer_field(gpu, __func__, &fields[i]);
    return leave(NVML_SUCCESS);
}

/* ---------------------------------------------------------------------------------------- MIG */

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *now, unsigned *pending)
{
    const struct section *gpu;
    u64 value;
    nvmlReturn_t status = enter_device(__func__, device, 0, &gpu);
    if (status)
        return status;
    status = now && pending ? number(gpu, "mig_mode", &value) : NVML_ERROR_INVALID_ARGUMENT;
    if (!status) {
        *now = (unsigned)value;
        *pending = (unsigned)number_or(gpu, "mig_mode_pending", value);
    }
    return leave(status);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *out)
{
    return device_uint(__func__, device, "mig_max_devices", out);
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned slot,
                                                        nvmlDevice_t *out)
{
    const struct section *gpu, *mig;
    u64 slots;
    nvmlReturn_t status = enter_device(__func__, device, 0, &gpu);
    if (status)
        return status;
    status = number(gpu, "mig_max_devices", &slots);
    if (!status && (slot >= slots || !out))
        status = NVML_ERROR_INVALID_ARGUMENT;
    if (status)
        return leave(status);
    for (u64 i = 0; (mig = nth(MIG, gpu, i)); i++)
        if (number_or(mig, "slot", 0) == slot)
            return leave(handle_for(mig, out));
    return leave(NVML_ERROR_NOT_FOUND);
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device,
                                                                 nvmlDevice_t *out)
{
    const struct section *section;
    nvmlReturn_t status = enter_device(__func__, device, 1, &section);
    if (status)
        return status;
    if (section->kind != MIG || !out)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    return leave(handle_for(physical(section), out));
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *out)
{
    const struct section *section;
    nvmlReturn_t status = enter_device(__func__, device, 1, &section);
    if (status)
        return status;
    if (!out)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    *out = section->kind == MIG;
    return leave(NVML_SUCCESS);
}

static nvmlReturn_t mig_uint(const char *function, nvmlDevice_t device, const char *key,
                             unsigned *out)
{
    const struct section *section;
    u64 value;
    nvmlReturn_t status = enter_device(function, device, 1, &section);
    if (status)
        return status;
    status = section->kind != MIG ? NVML_ERROR_NOT_SUPPORTED : number(section, key, &value);
    if (!status && !out)
        status = NVML_ERROR_INVALID_ARGUMENT;
    if (!status)
        *out = (unsigned)value;
    return leave(status);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *out)
{
    return mig_uint(__func__, device, "gpu_instance", out);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *out)
{
    return mig_uint(__func__, device, "compute_instance", out);
}

typedef struct {
    unsigned multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount,
        sharedJpegCount, sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    u64 memorySizeMB;
} nvmlDeviceAttributes_t;

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *out)
{
    const struct section *section;
    u64 processors, slices, compute_slices, memory;
    nvmlReturn_t status = enter_device(__func__, device, 1, &section);
    if (status)
        return status;
    if (section->kind != MIG || !out)
        return leave(out ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT);
    status = number(section, "multiprocessors", &processors);
    if (!status)
        status = number(section, "gpu_instance_slices", &slices);
    if (!status)
        status = number(section, "compute_instance_slices", &compute_slices);
    if (!status)
        status = number(section, "memory_total", &memory);
    if (!status)
        *out = (nvmlDeviceAttributes_t){.multiprocessorCount = (unsigned)processors,
                                        .gpuInstanceSliceCount = (unsigned)slices,
                                        .computeInstanceSliceCount = (unsigned)compute_slices,
                                        .memorySizeMB = memory >> 20};
    return leave(status);
}

/* ---------------------------------------------------------------------------------- processes */

typedef struct {
    unsigned pid;
    u64 usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

/* Is `process` one of `kind`, on the GPU or in the MIG device `section`? */
static int listed(const struct section *process, const struct section *section, const char *kind)
{
    const char *own = find(process, "kind");
    if (strcmp(own ? own : "compute", kind))
        return 0;
    return section->kind != MIG ||
           (number_or(process, "gpu_instance", NO_INSTANCE) ==
                number_or(section, "gpu_instance", 0) &&
            number_or(process, "compute_instance", NO_INSTANCE) ==
                number_or(section, "compute_instance", 0));
}

static nvmlReturn_t processes(const char *function, const char *kind, nvmlDevice_t device,
                              unsigned *count, nvmlProcessInfo_t *out)
{
    const struct section *section, *process;
    unsigned room, total = 0;
    nvmlReturn_t status = enter_device(function, device, 1, &section);
    if (status)
        return status;
    if (!count)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    room = out ? *count : 0;
    for (u64 i = 0; (process = nth(PROCESS, physical(section), i)); i++) {
        u64 pid;
        if (!listed(process, section, kind))
            continue;
        if (number(process, "pid", &pid))
            return leave(NVML_ERROR_UNKNOWN);
        if (total < room)
            out[total] = (nvmlProcessInfo_t){
                (unsigned)pid, number_or(process, "memory", NOT_AVAILABLE),
                (unsigned)number_or(process, "gpu_instance", NO_INSTANCE),
                (unsigned)number_or(process, "compute_instance", NO_INSTANCE)};
        total++;
    }
    *count = total;
    return leave(total > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                            nvmlProcessInfo_t *out)
{
    return processes(__func__, "compute", device, count, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                            nvmlProcessInfo_t *out)
{
    return processes(__func__, "compute", device, count, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                             nvmlProcessInfo_t *out)
{
    return processes(__func__, "graphics", device, count, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                             nvmlProcessInfo_t *out)
{
    return processes(__func__, "graphics", device, count, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device,
                                                               unsigned *count,
                                                               nvmlProcessInfo_t *out)
{
    return processes(__func__, "mps", device, count, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device,
                                                               unsigned *count,
                                                               nvmlProcessInfo_t *out)
{
    return processes(__func__, "mps", device, count, out);
}

typedef struct {
    unsigned pid;
    u64 timeStamp;
    unsigned smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;

EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                    nvmlProcessUtilizationSample_t *out,
                                                    unsigned *count, u64 last_seen)
{
    const struct section *gpu, *process;
    unsigned room, total = 0;
    nvmlReturn_t status = enter_device(__func__, device, 0, &gpu);
    if (status)
        return status;
    if (!count)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    room = out ? *count : 0;
    for (u64 i = 0; (process = nth(PROCESS, gpu, i)); i++) {
        u64 sm, time = number_or(process, "sample_time_us", now_ns() / 1000);
        if (number(process, "sm", &sm) || time <= last_seen)
            continue;
        if (total < room)
            out[total] = (nvmlProcessUtilizationSample_t){
                (unsigned)number_or(process, "pid", 0),
                time,
                (unsigned)sm,
                (unsigned)number_or(process, "memory_bandwidth", 0),
                (unsigned)number_or(process, "encoder", 0),
                (unsigned)number_or(process, "decoder", 0)};
        total++;
    }
    *count = total;
    if (!total)
        return leave(NVML_ERROR_NOT_FOUND);
    return leave(total > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}

/* ------------------------------------------------------------------------------------- events */

#define SETS 64

struct registration {
    char uuid[96];
    u64 types;
};

struct event_set {
    unsigned epoch; /* 0: not in use */
    struct registration *registrations;
    size_t registered;
    u64 *seen; /* ids of events that it returned, or that were there before it registered */
    size_t seen_count;
};
static struct event_set event_sets[SETS];

static nvmlReturn_t check_set(nvmlEventSet_t set)
{
    if (set < event_sets || set >= event_sets + SETS || !set->epoch)
        return NVML_ERROR_INVALID_ARGUMENT;
    return set->epoch == epoch ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

static void free_set(nvmlEventSet_t set)
{
    free(set->registrations);
    free(set->seen);
    *set = (struct event_set){0};
}

EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *out)
{
    nvmlReturn_t status = enter(__func__);
    if (status)
        return status;
    for (struct event_set *set = event_sets; out && set < event_sets + SETS; set++)
        if (set->epoch != epoch) { /* unused, or left behind by an earlier initialisation */
            free_set(set);
            set->epoch = epoch;
            *out = set;
            return leave(NVML_SUCCESS);
        }
    return leave(out ? NVML_ERROR_MEMORY : NVML_ERROR_INVALID_ARGUMENT);
}

EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    nvmlReturn_t status = enter(__func__);
    if (status)
        return status;
    status = check_set(set);
    if (!status)
        free_set(set);
    return leave(status);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, u64 *out)
{
    return device_number(__func__, device, "supported_events", out);
}

static int has_seen(nvmlEventSet_t set, u64 id)
{
    for (size_t i = 0; i < set->seen_count; i++)
        if (set->seen[i] == id)
            return 1;
    return 0;
}

static int see(nvmlEventSet_t set, u64 id)
{
    u64 *grown = realloc(set->seen, (set->seen_count + 1) * sizeof *grown);
    if (!grown)
        return 0;
    set->seen = grown;
    set->seen[set->seen_count++] = id;
    return 1;
}

/* The next event that is due, is of a registered kind, and was not yet returned by this set. */
static const struct section *due(nvmlEventSet_t set, const char *uuid, u64 types)
{
    const struct section *event;
    for (u64 i = 0; (event = nth(EVENT, NULL, i)); i++) {
        const char *gpu = find(event, "gpu");
        if (gpu && !strcmp(gpu, uuid) && (number_or(event, "type", 0) & types) &&
            number_or(event, "time_ns", 0) <= now_ns() && !has_seen(set, number_or(event, "id", 0)))
            return event;
    }
    return NULL;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, u64 types, nvmlEventSet_t set)
{
    const struct section *gpu, *event;
    struct registration *grown;
    u64 supported;
    nvmlReturn_t status = enter_device(__func__, device, 0, &gpu);
    if (status)
        return status;
    status = check_set(set);
    if (!status)
        status = number(gpu, "supported_events", &supported);
    if (!status && (types & ~supported))
        status = NVML_ERROR_NOT_SUPPORTED;
    if (status)
        return leave(status);
    grown = realloc(set->registrations, (set->registered + 1) * sizeof *grown);
    if (!grown)
        return leave(NVML_ERROR_MEMORY);
    set->registrations = grown;
    strcpy(grown[set->registered].uuid, device->uuid);
    grown[set->registered++].types = types;
    while ((event = due(set, device->uuid, types)))
        if (!see(set, number_or(event, "id", 0)))
            return leave(NVML_ERROR_MEMORY);
    return leave(NVML_SUCCESS);
}

typedef struct {
    nvmlDevice_t device;
    u64 eventType, eventData;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlEventData_t;

/* The next event of the set; without one, whether there can be any: TIMEOUT or GPU_IS_LOST. */
static nvmlReturn_t next_event(nvmlEventSet_t set, nvmlEventData_t *out)
{
    const struct section *event, *gpu;
    nvmlReturn_t status = NVML_ERROR_TIMEOUT;
    for (size_t i = 0; i < set->registered; i++) {
        const struct registration *registration = &set->registrations[i];
        gpu = by_uuid(GPU, registration->uuid);
        if (!gpu || number_or(gpu, "lost", 0))
            status = NVML_ERROR_GPU_IS_LOST;
        event = due(set, registration->uuid, registration->types);
        if (!event)
            continue;
        *out = (nvmlEventData_t){
            .eventType = number_or(event, "type", 0),
            .eventData = number_or(event, "data", 0),
            .gpuInstanceId =
                (unsigned)number_or(event, "gpu_instance", NO_INSTANCE),
            .computeInstanceId =
                (unsigned)number_or(event, "compute_instance", NO_INSTANCE)};
        if (!see(set, number_or(event, "id", 0)))
            return NVML_ERROR_MEMORY;
        for (struct handle *handle = handles; handle; handle = handle->next)
            if (handle->epoch == epoch && !strcmp(handle->uuid, registration->uuid))
                out->device = handle;
        return NVML_SUCCESS;
    }
    return status;
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *out, unsigned timeout)
{
    u64 start = monotonic_ms();
    nvmlReturn_t status = enter(__func__);
    if (status)
        return status;
    for (;;) {
        if (!hangs_for(NULL, __func__)) {
            status = initialised(__func__);
            if (!status)
                status = out ? check_set(set) : NVML_ERROR_INVALID_ARGUMENT;
            if (!status)
                status = next_event(set, out);
            if (status != NVML_ERROR_TIMEOUT || monotonic_ms() - start >= timeout)
                return leave(status);
        }
        pause_unlocked();
    }
}
